// Products of quantised weights with activations, on x86 processors with AVX2. patches.cmake puts them into
// ggml-cpu/ops.cpp, and ggml-cpu.c calls them.
//
// llama.cpp multiplies a block of weights and one of activations at a time, and unpacks the weights again for every few tokens.
// Here, eight rows of weights (with AVX-512, 16) are unpacked once for all tokens of a batch, so that a vector holds four
// values of each row, and no sum crosses a vector. A value does not depend on the other tokens of its batch: sums of a
// block are integers, and the blocks of a row are added in their order, for a single token as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "block_product.h"
#include "superblock_product.h"

#ifdef JAN_SERVE_PRODUCTS
namespace jan_serve {

constexpr int64_t TILE       = 4;   // tokens that share the vectors of a panel
constexpr int64_t CHUNK_ROWS = 64;  // rows that a thread takes at once, at most

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
        const int64_t share      = rows / (4 * params->nth) / PANEL_ROWS * PANEL_ROWS;
        const int64_t chunk_rows = std::clamp(share, PANEL_ROWS, CHUNK_ROWS);
        int64_t       chunk      = params->ith;
        while (chunk * chunk_rows < rows) {
            const int64_t last = std::min(rows, (chunk + 1) * chunk_rows);
            for (int64_t row = chunk * chunk_rows; row < last; row += PANEL_ROWS) {
                // Threads take chunks in turn as a rule.
                const bool is_last = row + PANEL_ROWS >= last;
                compute_rows(row, is_last ? (chunk + params->nth) * chunk_rows : row + PANEL_ROWS);
            }
            chunk = ggml_threadpool_chunk_add(params->threadpool, 1);
        }
    }

  private:
    static constexpr size_t ALIGNMENT = 64;

    static void * after(const void * end) {
        return (void *) (((uintptr_t) end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    }

    // A panel's rows from `first`, or those that are left. Prefetches those from `next_row`.
    void compute_rows(int64_t first, int64_t next_row) {
        const int64_t   count = std::min(PANEL_ROWS, rows - first);
        const Weights * weights[PANEL_ROWS];
        for (int64_t row = 0; row < PANEL_ROWS; row++) {
            const int64_t index = first + std::min(row, count - 1);
            weights[row] = (const Weights *) ((const char *) dst->src[0]->data + index * dst->src[0]->nb[1]);
        }
        float *      out  = (float *) dst->data + first;
        const char * next = (const char *) dst->src[0]->data + next_row * dst->src[0]->nb[1];
        if (tokens == 1) {
            return compute_few<1>(weights, out, count, next);
        }
        if (tokens == 2) {
            return compute_few<2>(weights, out, count, next);
        }
        if (tokens <= Product::SOME_TOKENS) {
            return compute_some(weights, out, count, next);
        }
        for (int64_t block = 0; block < blocks; block++) {
            Product::template pack<0>(weights, block, panels + block, next);
        }
        compute_many(out, count, next);
    }

    // Weights as they lie: so few tokens do not repay the unpacking.
    template <int N> void compute_few(const Weights * const * weights, float * out, int64_t count, const char * next) {
        for (int64_t row = 0; row < count; row += PART_ROWS) {
            __m256 products[N];
            Product::template multiply_few<N>(weights + row, blocks, activations, factors, next, products);
            for (int token = 0; token < N; token++) {
                store(out + token * rows + row, products[token], count - row);
            }
            next += PART_ROWS * dst->src[0]->nb[1];
        }
    }

    // A block after the other. The next rows are prefetched while a block is unpacked.
    void compute_some(const Weights * const * weights, float * out, int64_t count, const char * next) {
        constexpr size_t SIZE = sizeof(Weights);
        Floats           totals[Product::SOME_TOKENS] = {};
        for (int64_t block = 0; block < blocks; block++) {
            Product::template pack<SIZE>(weights, block, panels, next + block * PANEL_ROWS * SIZE);
            for (int64_t token = 0; token < tokens; token += TILE) {
                with_number(tokens - token, [&](auto number) {
                    add<decltype(number)::value>(*panels, token, block, totals + token);
                });
            }
        }
        store_all(out, totals, tokens, count);
    }

    // A tile of tokens after the other. The last two prefetch the next rows, since the tokens of a long batch fill the cache.
    void compute_many(float * out, int64_t count, const char * next) {
        constexpr size_t SHARE = PANEL_ROWS * sizeof(Weights) / 2;
        int64_t          token = 0;
        for (; token + 2 * TILE < tokens; token += TILE) {
            compute_tile<TILE, 0>(out, token, count, next);
        }
        for (; token < tokens; token += TILE) {
            with_number(tokens - token, [&](auto number) {
                compute_tile<decltype(number)::value, SHARE>(out, token, count, next);
            });
            next += blocks * SHARE;
        }
    }

    template <int N, size_t SHARE> void compute_tile(float * out, int64_t token, int64_t count, const char * next) {
        Floats totals[N] = {};
        for (int64_t block = 0; block < blocks; block++) {
            prefetch<SHARE>(next + block * SHARE);
            add<N>(panels[block], token, block, totals);
        }
        store_all(out + token * rows, totals, N, count);
    }

    // Calls `use` with the size of the next tile, if so many tokens are left.
    template <class Use> static void with_number(int64_t left, Use && use) {
        switch (left) {
            case 1:
                return use(std::integral_constant<int, 1>());
            case 2:
                return use(std::integral_constant<int, 2>());
            case 3:
                return use(std::integral_constant<int, 3>());
            default:
                return use(std::integral_constant<int, TILE>());
        }
    }

    template <int N> JAN_SERVE_INLINE void add(const Panel & panel, int64_t token, int64_t block, Floats * totals) {
        const int64_t first = token * blocks + block;
        Product::template add<N>(panel, activations + first, factors + first, blocks, totals);
    }

    void store_all(float * out, const Floats * totals, int64_t number, int64_t count) {
        for (int64_t token = 0; token < number; token++) {
            store(out + token * rows, totals[token], count);
        }
    }

    template <class Vector> static void store(float * out, Vector products, int64_t count) {
        memcpy(out, &products, std::min(count, (int64_t) (sizeof(products) / sizeof(float))) * sizeof(float));
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
        case GGML_TYPE_Q4_0:
            return use(Multiplication<BlockProduct<block_q4_0>>(dst, params)), true;
        case GGML_TYPE_IQ4_NL:
            return use(Multiplication<BlockProduct<block_iq4_nl>>(dst, params)), true;
        case GGML_TYPE_Q5_0:
            return use(Multiplication<BlockProduct<block_q5_0>>(dst, params)), true;
        case GGML_TYPE_Q8_0:
            return use(Multiplication<BlockProduct<block_q8_0>>(dst, params)), true;
#    if !defined(__AVX512F__) || defined(JAN_SERVE_WIDE)  // without VNNI, llama.cpp has products of twice the width
        case GGML_TYPE_Q4_K:
            return use(Multiplication<SuperblockProduct<block_q4_K>>(dst, params)), true;
        case GGML_TYPE_Q5_K:
            return use(Multiplication<SuperblockProduct<block_q5_K>>(dst, params)), true;
        case GGML_TYPE_Q6_K:
            return use(Multiplication<SuperblockProduct<block_q6_K>>(dst, params)), true;
#    endif
        default:
            return false;
    }
}

}  // namespace jan_serve
#else
namespace jan_serve {

template <class Use> inline bool with_multiplication(const ggml_tensor *, const ggml_compute_params *, Use &&) {
    return false;
}

}  // namespace jan_serve
#endif

// Bytes that the operation's buffer needs behind the quantised activations; 0 if it is not computed here.
size_t jan_serve_product_size(const ggml_tensor * dst, int threads) {
    size_t size = 0;
    jan_serve::with_multiplication(dst, nullptr, [&](const auto & product) { size = product.size(threads); });
    return size;
}

// Whether the operation is computed here.
bool jan_serve_has_product(const ggml_compute_params * params, const ggml_tensor * dst) {
    return jan_serve::with_multiplication(dst, params, [](const auto &) {});
}

// To be called by each thread once it has quantised its part, before the barrier.
void jan_serve_prepare_product(const ggml_compute_params * params, ggml_tensor * dst) {
    jan_serve::with_multiplication(dst, params, [](auto product) { product.prepare(); });
}

// To be called by each thread behind the barrier.
void jan_serve_compute_product(const ggml_compute_params * params, ggml_tensor * dst) {
    jan_serve::with_multiplication(dst, params, [](auto product) { product.compute(); });
}
