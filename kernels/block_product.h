// Types of weights whose blocks hold 32 values and a scale.
#pragma once

#include "vectors.h"

#ifdef JAN_SERVE_PRODUCTS
#    define GGML_COMMON_DECL_CPP
#    include "ggml-common.h"

namespace jan_serve {

// How a type's block of 32 values becomes bytes: a value is its byte, less OFFSET, times the block's scale. IS_SIGNED: bytes
// are signed. IS_SHORT: four products of pairs fit into 16 bits. `of`: the bytes of a block. `of_rows`: those of a panel, four
// of each row to a vector.
template <class Block> struct Bytes;

inline __m256i half_bytes(const uint8_t * packed) {
    const __m128i bytes = _mm_loadu_si128((const __m128i *) packed);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes), _mm256_set1_epi8(15));
}

#    ifdef JAN_SERVE_WIDE
// The same of two blocks, one after the other.
inline __m512i half_bytes(const uint8_t * first, const uint8_t * second) {
    const auto    at    = [](const uint8_t * packed) { return _mm_loadu_si128((const __m128i *) packed); };
    const __m512i twice = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(at(first)), 0xFF00, at(second));
    const __m512i four  = _mm512_set1_epi64(0x0004000400040004);
    return _mm512_and_si512(_mm512_srlv_epi16(twice, _mm512_maskz_mov_epi64(0xCC, four)), _mm512_set1_epi8(15));
}

// The bytes of two blocks.
template <class Block> JAN_SERVE_INLINE __m512i bytes_of(const Block & first, const Block & second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(Bytes<Block>::of(first)), Bytes<Block>::of(second), 1);
}

template <> JAN_SERVE_INLINE __m512i bytes_of(const block_q4_0 & first, const block_q4_0 & second) {
    return half_bytes(first.qs, second.qs);
}
#    endif

// Vector i gets values 4 i to 4 i + 3 of a block of each row. Lower halves of bytes hold the first sixteen values.
template <class Block> JAN_SERVE_INLINE void load_halves(const Block * const * rows, int64_t block, Ints * fours) {
    load_fours([&](int row) { return rows[row][block].qs; }, fours);
    const Ints lower = JAN_SERVE_OP(set1_epi8)(15);
    for (int i = 0; i < 4; i++) {
        fours[4 + i] = JAN_SERVE_BITS(and)(JAN_SERVE_OP(srli_epi16)(fours[i], 4), lower);
        fours[i]     = JAN_SERVE_BITS(and)(fours[i], lower);
    }
}

template <> struct Bytes<block_q4_0> {
    static constexpr int32_t OFFSET    = 8;
    static constexpr bool    IS_SIGNED = false;
    static constexpr bool    IS_SHORT  = true;

    static __m256i of(const block_q4_0 & block) { return half_bytes(block.qs); }

    static JAN_SERVE_INLINE void of_rows(const block_q4_0 * const * rows, int64_t block, const Heads &, Ints * fours) {
        load_halves(rows, block, fours);
    }
};

template <> struct Bytes<block_q5_0> {
    static constexpr int32_t OFFSET    = 16;
    static constexpr bool    IS_SIGNED = false;
    static constexpr bool    IS_SHORT  = true;

    static __m256i of(const block_q5_0 & block) {
        // The fifth bits: each byte of 32 gets the byte of `qh` that holds its bit.
        int32_t bits;
        memcpy(&bits, block.qh, sizeof(bits));
        const __m256i places = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
        const __m256i bit    = _mm256_set1_epi64x((int64_t) 0x8040201008040201);
        const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), places), bit);
        return _mm256_or_si256(half_bytes(block.qs), _mm256_and_si256(_mm256_cmpeq_epi8(spread, bit), _mm256_set1_epi8(16)));
    }

    static JAN_SERVE_INLINE void of_rows(const block_q5_0 * const * rows, int64_t block, const Heads & heads, Ints * fours) {
        load_halves(rows, block, fours);
        const Ints fifths = heads.fours<offsetof(block_q5_0, qh)>();
        for (int byte = 0; byte < 4; byte++) {
            // Each byte of a lane gets the one of `qh` that holds the bits of these eight values.
            const __m128i places = _mm_add_epi8(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C), _mm_set1_epi8(byte));
            const Ints    spread = JAN_SERVE_OP(shuffle_epi8)(fifths, of_parts([&](int) { return places; }));
            fours[2 * byte]      = add_sixteen(fours[2 * byte], spread, each_lane(0x08040201));
            fours[2 * byte + 1]  = add_sixteen(fours[2 * byte + 1], spread, each_lane((int32_t) 0x80402010));
        }
    }
};

// Signed bytes. Products of a pair of unsigned ones do not fit into 16 bits; VNNI adds them in 32.
struct SignedBytes {
#    ifdef JAN_SERVE_VNNI
    static constexpr int32_t OFFSET    = 128;
    static constexpr bool    IS_SIGNED = false;
#    else
    static constexpr int32_t OFFSET    = 0;
    static constexpr bool    IS_SIGNED = true;
#    endif
    static constexpr bool IS_SHORT = false;

    static __m256i moved(__m256i bytes) { return OFFSET ? _mm256_xor_si256(bytes, _mm256_set1_epi8(-128)) : bytes; }

    static void move(Ints * fours) {
        for (int i = 0; i < (OFFSET ? 8 : 0); i++) {
            fours[i] = JAN_SERVE_BITS(xor)(fours[i], JAN_SERVE_OP(set1_epi8)(-128));
        }
    }
};

template <> struct Bytes<block_q8_0> : SignedBytes {
    static __m256i of(const block_q8_0 & block) { return moved(_mm256_loadu_si256((const __m256i *) block.qs)); }

    static JAN_SERVE_INLINE void of_rows(const block_q8_0 * const * rows, int64_t block, const Heads &, Ints * fours) {
        load_fours([&](int row) { return rows[row][block].qs; }, fours);
        load_fours([&](int row) { return rows[row][block].qs + 16; }, fours + 4);
        move(fours);
    }
};

template <> struct Bytes<block_iq4_nl> : SignedBytes {
    static __m256i of(const block_iq4_nl & block) {
        return moved(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(nonlinear_values()), half_bytes(block.qs)));
    }

    static JAN_SERVE_INLINE void of_rows(const block_iq4_nl * const * rows, int64_t block, const Heads &, Ints * fours) {
        load_halves(rows, block, fours);
        for (int i = 0; i < 8; i++) {
            fours[i] = JAN_SERVE_OP(shuffle_epi8)(of_parts([](int) { return nonlinear_values(); }), fours[i]);
        }
        move(fours);
    }
};

template <> struct Bytes<block_mxfp4> {
    static constexpr int32_t OFFSET    = 12;
    static constexpr bool    IS_SIGNED = false;
    static constexpr bool    IS_SHORT  = true;

    static __m128i values() { return _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0); }

    static __m256i of(const block_mxfp4 & block) {
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values()), half_bytes(block.qs));
    }

    static JAN_SERVE_INLINE void of_rows(const block_mxfp4 * const * rows, int64_t block, const Heads &, Ints * fours) {
        load_halves(rows, block, fours);
        for (int i = 0; i < 8; i++) {
            fours[i] = JAN_SERVE_OP(shuffle_epi8)(of_parts([](int) { return values(); }), fours[i]);
        }
    }
};

#    ifdef JAN_SERVE_WIDE
template <> JAN_SERVE_INLINE __m512i bytes_of(const block_mxfp4 & first, const block_mxfp4 & second) {
    const __m512i table = _mm512_broadcast_i32x4(Bytes<block_mxfp4>::values());
    return _mm512_shuffle_epi8(table, half_bytes(first.qs, second.qs));
}
#    endif

// The scales of the same block of a panel's rows, whose first bytes are `heads`, and of eight rows.
template <class Block> struct Scales {
    static Floats of_heads(const Heads & heads) { return as_floats(heads.fours<offsetof(Block, d)>()); }

    static __m256 of_rows(const Block * const * rows, int64_t block) { return scales_of(rows, block); }
};

template <> struct Scales<block_mxfp4> {
    static Floats of_heads(const Heads & heads) {
        return powers_of_two(JAN_SERVE_BITS(and)(heads.fours<offsetof(block_mxfp4, e)>(), each_lane(255)));
    }

    static __m256 of_rows(const block_mxfp4 * const * rows, int64_t block) {
        const auto e = [&](int row) { return (int32_t) rows[row][block].e; };
        return powers_of_two(_mm256_setr_epi32(e(0), e(1), e(2), e(3), e(4), e(5), e(6), e(7)));
    }
};

// Products of a type whose blocks hold 32 values and a scale. Activations are quantised as Q8_0.
template <class Block> struct BlockProduct {
    using Weights = Block;

    // So many tokens are multiplied a block at a time: more have too many sums for the short work of a block.
    static constexpr int64_t SOME_TOKENS = PARTS == 1 ? 4 : 16;

    // The same block of some rows.
    struct Panel {
        float  scales[PANEL_ROWS];
        int8_t bytes[PANEL_ROWS * QK8_0];  // four of each row, then the next four
    };

    // A block of activations. start: what all its products have in common.
    struct Activations {
        float   scale;
        int32_t start;
        int8_t  values[QK8_0];
    };

    static void quantise(const float * values, Activations & out) {
        const float   largest = largest_of<QK8_0>(values);
        const __m256i bytes   = as_bytes(values, largest ? 127 / largest : 0);
        _mm256_storeu_si256((__m256i *) out.values, bytes);
        out.scale = _cvtsh_ss(_cvtss_sh(largest / 127, 0));
        out.start = 0;
        if (Bytes<Block>::OFFSET) {
            const __m128i sums = sums_of_halves(bytes);
            out.start          = -Bytes<Block>::OFFSET * (_mm_extract_epi32(sums, 0) + _mm_extract_epi32(sums, 1));
        }
    }

    // Prefetches SHARE bytes of `next` for each row.
    template <size_t SHARE> static void pack(const Block * const * rows, int64_t block, Panel * panel, const char * next) {
        prefetch<PANEL_ROWS * SHARE>(next);
        const Heads heads([&](int row) { return rows[row] + block; });
        Ints        fours[QK8_0 / 4];
        Bytes<Block>::of_rows(rows, block, heads, fours);
        // In a loop, gcc copies the vectors through memory.
#    pragma GCC unroll 8
        for (int four = 0; four < QK8_0 / 4; four++) {
            JAN_SERVE_BITS(storeu)((Ints *) panel->bytes + four, fours[four]);
        }
        const Floats scales = Scales<Block>::of_heads(heads);
        memcpy(panel->scales, &scales, sizeof(scales));
    }

    // `sums` get the products of a panel with a block of each of N rows of activations.
    template <int N> static void add_block(const Panel & panel, const int8_t * const * activations, Ints * sums) {
        const Ints * weights = (const Ints *) panel.bytes;
        constexpr int FOURS  = QK8_0 / 4;
#    ifdef JAN_SERVE_VNNI
        add_fours<N, FOURS>(weights, activations, sums);
#    else
        if constexpr (Bytes<Block>::IS_SHORT) {
            const int8_t * rest[N];
            for (int j = 0; j < N; j++) {
                rest[j] = activations[j];
            }
            // Unrolled, the loop spills sums with Clang.
#        pragma GCC unroll 1
            for (int first = 0; first < FOURS; first += 4) {
                Ints shorts[N];
                sum_pairs<N, 4>(weights + first, rest, shorts);
                for (int j = 0; j < N; j++) {
                    sums[j] = add_pairs(sums[j], shorts[j], _mm256_set1_epi16(1));
                    rest[j] += 16;
                }
            }
            return;
        }
        for (int i = 0; i < FOURS; i++) {
            const Ints four = load<Ints>(weights + i);
            for (int j = 0; j < N; j++) {
                sums[j] = add_signed(sums[j], four, four_bytes(activations[j] + 4 * i));
            }
        }
#    endif
    }

    // `totals` get the products of a panel with the block of each of N rows of activations.
    template <int N>
    static JAN_SERVE_INLINE void add(const Panel & panel, const Activations * const * activations, int64_t block, Floats * totals) {
        const int8_t * values[N];
        Ints           sums[N];
        for (int j = 0; j < N; j++) {
            values[j] = activations[j][block].values;
            sums[j]   = each_lane(activations[j][block].start);
        }
        add_block<N>(panel, values, sums);
        const Floats scales = load<Floats>(panel.scales);
        for (int j = 0; j < N; j++) {
            totals[j] = add_scaled(totals[j], sums[j], scaled(scales, activations[j][block].scale));
        }
    }

    // The products of eight rows with each of N rows of activations, from the weights as they lie.
    template <int N>
    static void multiply_few(const Block * const * rows, int64_t blocks, const Activations * const * activations, const char * next,
                             __m256 * products) {
        for (int j = 0; j < N; j++) {
            products[j] = multiply_one(rows, blocks, activations[j], next);
        }
    }

  private:
    static __m256 multiply_one(const Block * const * rows, int64_t blocks, const Activations * column, const char * next) {
        __m256 total = _mm256_setzero_ps();
        for (int64_t block = 0; block < blocks; block++) {
            prefetch<PART_ROWS * sizeof(Block)>(next + block * PART_ROWS * sizeof(Block));
            const __m256i activations = _mm256_loadu_si256((const __m256i *) column[block].values);
#    ifdef JAN_SERVE_WIDE
            const __m512i twice = _mm512_broadcast_i64x4(activations);
            __m512i       sums[PART_ROWS / 2];
            for (int row = 0; row < PART_ROWS; row += 2) {
                const __m512i bytes = bytes_of(rows[row][block], rows[row + 1][block]);
                sums[row / 2]       = add_products(_mm512_setzero_si512(), bytes, twice);
            }
#    else
            __m256i sums[PART_ROWS];
            for (int row = 0; row < PART_ROWS; row++) {
                sums[row] = add_signed(_mm256_setzero_si256(), Bytes<Block>::of(rows[row][block]), activations);
            }
#    endif
            const __m256i sum = _mm256_add_epi32(sums_of(sums), _mm256_set1_epi32(column[block].start));
            total             = add_scaled(total, sum, scaled(Scales<Block>::of_rows(rows, block), column[block].scale));
        }
        return total;
    }

    static __m256i add_signed(__m256i sums, __m256i weights, __m256i activations) {
        if constexpr (Bytes<Block>::IS_SIGNED) {
            return add_products(sums, _mm256_abs_epi8(weights), _mm256_sign_epi8(activations, weights));
        } else {
            return add_products(sums, weights, activations);
        }
    }
};

}  // namespace jan_serve
#endif
