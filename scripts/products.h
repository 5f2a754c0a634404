// Products of quantised weights with activations, on x86 processors with AVX2. scripts/llama.cmake puts them into
// ggml-cpu/ops.cpp, and ggml-cpu.c calls them.
//
// llama.cpp multiplies these types a block of 32 values at a time, and reads a block of weights again for every two or four
// tokens. Here, eight rows of weights are unpacked once for all tokens of a batch, so that a vector holds four values of each
// row, and no sum crosses a vector. A value does not depend on the other tokens of its batch: sums of a block are integers,
// and the blocks of a row are added in their order, for a single token as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    define JAN_SERVE_PRODUCTS 1
#    include <immintrin.h>

#    define GGML_COMMON_DECL_CPP
#    include "ggml-common.h"

#    if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
#        define JAN_SERVE_VNNI 1
#    endif
#endif

#ifdef JAN_SERVE_PRODUCTS
namespace jan_serve {

constexpr int64_t PANEL_ROWS = 8;
constexpr int64_t FEW_TOKENS = 4;  // fewer do not repay the unpacking
constexpr int64_t CHUNK_ROWS = 64;

// Of four neighbouring bytes in each of eight lanes.
inline __m256i add_products(__m256i sums, __m256i u8, __m256i s8) {
#    if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return _mm256_dpbusd_epi32(sums, u8, s8);
#    elif defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sums, u8, s8);
#    else
    return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(u8, s8), _mm256_set1_epi16(1)));
#    endif
}

// Lane i is the sum of rows[i].
inline __m256i sums_of(const __m256i * rows) {
    const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(rows[0], rows[1]), _mm256_hadd_epi32(rows[2], rows[3]));
    const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(rows[4], rows[5]), _mm256_hadd_epi32(rows[6], rows[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

// Eight rows of eight groups of four bytes become eight groups of eight rows.
inline void transpose(__m256i * rows) {
    __m256i pairs[8];
    __m256i fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i]     = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        fours[i]     = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        rows[i]     = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
        rows[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
    }
}

// The same four bytes in each lane.
inline __m256i four_bytes(const int8_t * bytes) {
    int32_t four;
    memcpy(&four, bytes, sizeof(four));
    return _mm256_set1_epi32(four);
}

// The half floats `d` of the same block of eight rows.
template <class Block> inline __m256 scales_of(const Block * const * rows, int64_t block) {
    const auto d = [&](int row) { return (short) rows[row][block].d; };
    return _mm256_cvtph_ps(_mm_setr_epi16(d(0), d(1), d(2), d(3), d(4), d(5), d(6), d(7)));
}

// How a type's block of 32 values becomes bytes: a value is its byte, less OFFSET, times the block's scale. IS_SIGNED: bytes
// are signed. IS_SHORT: four products of pairs fit into 16 bits.
template <class Block> struct Bytes;

template <> struct Bytes<block_q5_0> {
    static constexpr int32_t OFFSET    = 16;
    static constexpr bool    IS_SIGNED = false;
    static constexpr bool    IS_SHORT  = true;

    static __m256i of(const block_q5_0 & block) {
        const __m128i packed = _mm_loadu_si128((const __m128i *) block.qs);
        const __m256i low    = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(packed, 4), packed), _mm256_set1_epi8(15));
        // The fifth bits: each byte of 32 gets the byte of `qh` that holds its bit.
        int32_t bits;
        memcpy(&bits, block.qh, sizeof(bits));
        const __m256i places = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
        const __m256i bit    = _mm256_set1_epi64x((int64_t) 0x8040201008040201);
        const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), places), bit);
        return _mm256_or_si256(low, _mm256_and_si256(_mm256_cmpeq_epi8(spread, bit), _mm256_set1_epi8(16)));
    }
};

template <> struct Bytes<block_q8_0> {
#    ifdef JAN_SERVE_VNNI
    static constexpr int32_t OFFSET    = 128;
    static constexpr bool    IS_SIGNED = false;
#    else
    static constexpr int32_t OFFSET    = 0;  // a pair of unsigned products would not fit into 16 bits
    static constexpr bool    IS_SIGNED = true;
#    endif
    static constexpr bool IS_SHORT = false;

    static __m256i of(const block_q8_0 & block) {
        const __m256i bytes = _mm256_loadu_si256((const __m256i *) block.qs);
        return OFFSET ? _mm256_xor_si256(bytes, _mm256_set1_epi8(-128)) : bytes;
    }
};

// Products of a type whose blocks hold 32 values and a scale. Rows of activations are Q8_0.
template <class Block> struct BlockProduct {
    using Weights     = Block;
    using Activations = block_q8_0;

    // The same block of eight rows.
    struct Panel {
        float  scales[PANEL_ROWS];
        int8_t bytes[PANEL_ROWS * QK8_0];  // four of each row, then the next four
    };

    // Of a block of activations: its scale, and what all its products have in common.
    struct Factor {
        float   scale;
        int32_t start;
    };

    static void prepare(const block_q8_0 * block, Factor * factor) {
        int32_t start = 0;
        for (int i = 0; i < (Bytes<Block>::OFFSET ? QK8_0 : 0); i++) {
            start -= Bytes<Block>::OFFSET * block->qs[i];
        }
        *factor = { _cvtsh_ss(block->d), start };
    }

    static void pack(const Block * const * rows, int64_t block, Panel * panel) {
        __m256i bytes[PANEL_ROWS];
        for (int row = 0; row < PANEL_ROWS; row++) {
            bytes[row] = Bytes<Block>::of(rows[row][block]);
        }
        transpose(bytes);
        for (int i = 0; i < PANEL_ROWS; i++) {
            _mm256_storeu_si256((__m256i *) panel->bytes + i, bytes[i]);
        }
        _mm256_storeu_ps(panel->scales, scales_of(rows, block));
    }

    // `sums` get the products of a panel with a block of each of N rows of activations.
    template <int N> static void add_block(const Panel & panel, const block_q8_0 * const * columns, int64_t block, __m256i * sums) {
        const __m256i * weights = (const __m256i *) panel.bytes;
#    ifndef JAN_SERVE_VNNI
        if constexpr (Bytes<Block>::IS_SHORT) {
            // Unrolled, Clang computes all at once and spills the sums.
#        pragma GCC unroll 1
            for (int first = 0; first < PANEL_ROWS; first += 4) {
                __m256i shorts[N];
                for (int i = first; i < first + 4; i++) {
                    const __m256i four = _mm256_loadu_si256(weights + i);
                    for (int j = 0; j < N; j++) {
                        const __m256i pairs = _mm256_maddubs_epi16(four, four_bytes(columns[j][block].qs + 4 * i));
                        shorts[j]           = i > first ? _mm256_add_epi16(shorts[j], pairs) : pairs;
                    }
                }
                for (int j = 0; j < N; j++) {
                    sums[j] = _mm256_add_epi32(sums[j], _mm256_madd_epi16(shorts[j], _mm256_set1_epi16(1)));
                }
            }
            return;
        }
#    endif
        for (int i = 0; i < PANEL_ROWS; i++) {
            const __m256i four = _mm256_loadu_si256(weights + i);
            for (int j = 0; j < N; j++) {
                sums[j] = add_signed(sums[j], four, four_bytes(columns[j][block].qs + 4 * i));
            }
        }
    }

    // `out` gets eight products for each of N rows of activations.
    template <int N>
    static void multiply(const Panel * panels, int64_t blocks, const block_q8_0 * const * columns, const Factor * const * factors,
                         __m256 * out) {
        __m256 totals[N];
        for (int j = 0; j < N; j++) {
            totals[j] = _mm256_setzero_ps();
        }
        for (int64_t block = 0; block < blocks; block++) {
            __m256i sums[N];
            for (int j = 0; j < N; j++) {
                sums[j] = _mm256_set1_epi32(factors[j][block].start);
            }
            add_block<N>(panels[block], columns, block, sums);
            const __m256 scales = _mm256_loadu_ps(panels[block].scales);
            for (int j = 0; j < N; j++) {
                totals[j] = add_scaled(totals[j], sums[j], scales, factors[j][block]);
            }
        }
        for (int j = 0; j < N; j++) {
            out[j] = totals[j];
        }
    }

    // The same for one row of activations, from the weights as they lie.
    static __m256 multiply_one(const Block * const * rows, int64_t blocks, const block_q8_0 * column, const Factor * factors) {
        __m256 total = _mm256_setzero_ps();
        for (int64_t block = 0; block < blocks; block++) {
            // Eight short rows are more streams than processors foresee: ask for the next eight rows.
            const char * next = (const char *) rows[0] + PANEL_ROWS * (blocks + block) * sizeof(Block);
            for (size_t line = 0; line < PANEL_ROWS * sizeof(Block); line += 64) {
                _mm_prefetch(next + line, _MM_HINT_T0);
            }
            const __m256i activations = _mm256_loadu_si256((const __m256i *) column[block].qs);
            __m256i       sums[PANEL_ROWS];
            for (int row = 0; row < PANEL_ROWS; row++) {
                sums[row] = add_signed(_mm256_setzero_si256(), Bytes<Block>::of(rows[row][block]), activations);
            }
            const __m256i sum = _mm256_add_epi32(sums_of(sums), _mm256_set1_epi32(factors[block].start));
            total             = add_scaled(total, sum, scales_of(rows, block), factors[block]);
        }
        return total;
    }

  private:
    static __m256i add_signed(__m256i sums, __m256i weights, __m256i activations) {
        if constexpr (Bytes<Block>::IS_SIGNED) {
            return add_products(sums, _mm256_abs_epi8(weights), _mm256_sign_epi8(activations, weights));
        } else {
            return add_products(sums, weights, activations);
        }
    }

    static __m256 add_scaled(__m256 total, __m256i sums, __m256 scales, const Factor & factor) {
        return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(scales, _mm256_set1_ps(factor.scale)), total);
    }
};

// One operation: dst = weights × activations. Its buffer holds the quantised activations, as llama.cpp lays them out, then
// the factors of their blocks, then each thread's panels.
template <class Product> class Multiplication {
  public:
    using Weights     = typename Product::Weights;
    using Activations = typename Product::Activations;
    using Panel       = typename Product::Panel;
    using Factor      = typename Product::Factor;

    Multiplication(const ggml_tensor * dst, const ggml_compute_params * params) : dst(dst), params(params) {
        const ggml_tensor * weights = dst->src[0];
        blocks                      = weights->ne[0] / ggml_blck_size(weights->type);
        rows                        = weights->ne[1];
        tokens                      = ggml_nrows(dst->src[1]);
        if (params) {
            activations = (const Activations *) params->wdata;
            factors     = (Factor *) after(activations + blocks * tokens);
            panels      = (Panel *) after(factors + blocks * tokens) + params->ith * blocks;
        }
    }

    // Bytes of the buffer behind the quantised activations.
    size_t size(int threads) const {
        return 2 * ALIGNMENT + blocks * (tokens * sizeof(Factor) + threads * sizeof(Panel));
    }

    // What this thread quantised: the same part of each row of activations.
    void prepare() {
        const int64_t first = params->ith * blocks / params->nth;
        const int64_t last  = (params->ith + 1) * blocks / params->nth;
        for (int64_t token = 0; token < tokens; token++) {
            for (int64_t block = first; block < last; block++) {
                Product::prepare(activations + token * blocks + block, factors + token * blocks + block);
            }
        }
    }

    // Once all threads have prepared. The next chunk of rows goes to the thread that is free.
    void compute() {
        const int64_t chunk_rows = tokens < FEW_TOKENS && rows >= 4 * params->nth * CHUNK_ROWS ? CHUNK_ROWS : PANEL_ROWS;
        int64_t       chunk      = params->ith;
        while (chunk * chunk_rows < rows) {
            const int64_t last = std::min(rows, (chunk + 1) * chunk_rows);
            for (int64_t row = chunk * chunk_rows; row < last; row += PANEL_ROWS) {
                compute_rows(row);
            }
            chunk = ggml_threadpool_chunk_add(params->threadpool, 1);
        }
    }

  private:
    static constexpr size_t ALIGNMENT = 64;

    static void * after(const void * end) {
        return (void *) (((uintptr_t) end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    }

    // Eight rows from `first`, or those that are left.
    void compute_rows(int64_t first) {
        const int64_t   count = std::min(PANEL_ROWS, rows - first);
        const Weights * weights[PANEL_ROWS];
        for (int64_t row = 0; row < PANEL_ROWS; row++) {
            const int64_t index = first + std::min(row, count - 1);
            weights[row] = (const Weights *) ((const char *) dst->src[0]->data + index * dst->src[0]->nb[1]);
        }
        float * out = (float *) dst->data + first;
        if (tokens < FEW_TOKENS) {
            for (int64_t token = 0; token < tokens; token++) {
                const __m256 products =
                    Product::multiply_one(weights, blocks, activations + token * blocks, factors + token * blocks);
                store(out + token * rows, products, count);
            }
            return;
        }
        for (int64_t block = 0; block < blocks; block++) {
            Product::pack(weights, block, panels + block);
        }
        int64_t token = 0;
        for (; token + 4 <= tokens; token += 4) {
            compute_tile<4>(out, token, count);
        }
        switch (tokens - token) {
            case 3:
                return compute_tile<3>(out, token, count);
            case 2:
                return compute_tile<2>(out, token, count);
            case 1:
                return compute_tile<1>(out, token, count);
        }
    }

    template <int N> void compute_tile(float * out, int64_t token, int64_t count) {
        const Activations * columns[N];
        const Factor *      column_factors[N];
        __m256              products[N];
        for (int j = 0; j < N; j++) {
            columns[j]        = activations + (token + j) * blocks;
            column_factors[j] = factors + (token + j) * blocks;
        }
        Product::template multiply<N>(panels, blocks, columns, column_factors, products);
        for (int j = 0; j < N; j++) {
            store(out + (token + j) * rows, products[j], count);
        }
    }

    static void store(float * out, __m256 products, int64_t count) {
        if (count == PANEL_ROWS) {
            _mm256_storeu_ps(out, products);
        } else {
            float all[PANEL_ROWS];
            _mm256_storeu_ps(all, products);
            memcpy(out, all, count * sizeof(float));
        }
    }

    const ggml_tensor *         dst;
    const ggml_compute_params * params;
    int64_t                     blocks;
    int64_t                     rows;
    int64_t                     tokens;
    const Activations *         activations = nullptr;
    Factor *                    factors     = nullptr;
    Panel *                     panels      = nullptr;
};

// Calls `use` with the multiplication of the operation's type of weights. Whether there is one.
template <class Use> inline bool with_multiplication(const ggml_tensor * dst, const ggml_compute_params * params, Use && use) {
    const ggml_tensor * weights = dst->src[0];
    if (weights->ne[2] != 1 || weights->ne[3] != 1 || weights->extra || weights->nb[0] != ggml_type_size(weights->type) ||
        dst->src[1]->type != GGML_TYPE_F32 || !ggml_is_contiguous(dst) || (params && params->use_ref)) {
        return false;
    }
    switch (weights->type) {
        case GGML_TYPE_Q5_0:
            use(Multiplication<BlockProduct<block_q5_0>>(dst, params));
            return true;
        case GGML_TYPE_Q8_0:
            use(Multiplication<BlockProduct<block_q8_0>>(dst, params));
            return true;
        default:
            return false;
    }
}

}  // namespace jan_serve
#endif

// Bytes that the operation's buffer needs behind the quantised activations; 0 if it is not computed here.
size_t jan_serve_product_size(const ggml_tensor * dst, int threads) {
    size_t size = 0;
#ifdef JAN_SERVE_PRODUCTS
    jan_serve::with_multiplication(dst, nullptr, [&](const auto & product) { size = product.size(threads); });
#else
    (void) dst;
    (void) threads;
#endif
    return size;
}

// Whether the operation is computed here.
bool jan_serve_has_product(const ggml_compute_params * params, const ggml_tensor * dst) {
#ifdef JAN_SERVE_PRODUCTS
    return jan_serve::with_multiplication(dst, params, [](const auto &) {});
#else
    (void) params;
    (void) dst;
    return false;
#endif
}

// To be called by each thread once it has quantised its part, before the barrier.
void jan_serve_prepare_product(const ggml_compute_params * params, ggml_tensor * dst) {
#ifdef JAN_SERVE_PRODUCTS
    jan_serve::with_multiplication(dst, params, [](auto product) { product.prepare(); });
#else
    (void) params;
    (void) dst;
#endif
}

// To be called by each thread behind the barrier.
void jan_serve_compute_product(const ggml_compute_params * params, ggml_tensor * dst) {
#ifdef JAN_SERVE_PRODUCTS
    jan_serve::with_multiplication(dst, params, [](auto product) { product.compute(); });
#else
    (void) params;
    (void) dst;
#endif
}
