// Types of weights whose superblocks hold 256 values, in groups of 16 or 32 with scales of their own.
#pragma once

#include <cmath>

#include "vectors.h"

#ifdef JAN_SERVE_PRODUCTS
#    define GGML_COMMON_DECL_CPP
#    include "ggml-common.h"

namespace jan_serve {

constexpr int    BLOCKS = QK_K / 32;  // of a superblock: a vector of bytes each
constexpr size_t AHEAD  = 8192;       // bytes by which a row is prefetched

// A superblock as it is read: a value is its byte times its group's scale times `d`, less its group's minimum times `least`.
// Groups hold 16 values, and numbers of groups 16 bits; the even groups are in the lower half, the odd ones in the upper.
struct Superblock {
    __m256i bytes[BLOCKS];
    __m256i scales;
    __m256i minima;
    float   d;
    float   least;
};

// Twelve bytes hold a scale and a minimum of six bits for each block: those of four blocks in the lower six bits of a word each;
// of the other four, the lower four bits in the third word, and the upper two in the upper two bits of the first words.
inline void read_scales(const uint8_t * packed, Superblock & out) {
    const __m128i words   = _mm_loadu_si128((const __m128i *) packed);  // and four bytes of what follows
    const __m128i first   = _mm_srlv_epi32(_mm_shuffle_epi32(words, 0x50), _mm_setr_epi32(0, 2, 0, 2));
    const __m128i third   = _mm_srlv_epi32(_mm_shuffle_epi32(words, 0xAA), _mm_setr_epi32(0, 0, 0, 4));
    const __m128i six     = _mm_setr_epi32(0x3F3F3F3F, 0x30303030, 0x3F3F3F3F, 0x30303030);
    const __m128i four    = _mm_setr_epi32(0, 0x0F0F0F0F, 0, 0x0F0F0F0F);
    const __m128i numbers = _mm_or_si128(_mm_and_si128(first, six), _mm_and_si128(third, four));
    const __m256i twice   = _mm256_broadcastsi128_si256(numbers);
    out.scales            = _mm256_unpacklo_epi8(twice, _mm256_setzero_si256());
    out.minima            = _mm256_unpackhi_epi8(twice, _mm256_setzero_si256());
}

inline __m256i half_bytes(__m256i bytes) {
    return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}

inline Superblock read(const block_q4_K & block) {
    Superblock out;
    read_scales(block.scales, out);
    for (int i = 0; i < BLOCKS; i += 2) {
        const __m256i packed = _mm256_loadu_si256((const __m256i *) (block.qs + 16 * i));
        out.bytes[i]         = half_bytes(packed);
        out.bytes[i + 1]     = half_bytes(_mm256_srli_epi16(packed, 4));
    }
    out.d     = _cvtsh_ss(block.data.data.d);
    out.least = _cvtsh_ss(block.data.data.dmin);
    return out;
}

inline Superblock read(const block_q5_K & block) {
    Superblock out;
    read_scales(block.scales, out);
    const __m256i high = _mm256_loadu_si256((const __m256i *) block.qh);  // bit i of each byte: of block i
    const __m256i fifth = _mm256_set1_epi8(16);
    for (int i = 0; i < BLOCKS; i += 2) {
        const __m256i packed = _mm256_loadu_si256((const __m256i *) (block.qs + 16 * i));
        const __m256i even   = i <= 4 ? _mm256_slli_epi16(high, 4 - i) : _mm256_srli_epi16(high, i - 4);
        const __m256i odd    = i < 4 ? _mm256_slli_epi16(high, 3 - i) : _mm256_srli_epi16(high, i - 3);
        out.bytes[i]         = _mm256_or_si256(half_bytes(packed), _mm256_and_si256(even, fifth));
        out.bytes[i + 1] = _mm256_or_si256(half_bytes(_mm256_srli_epi16(packed, 4)), _mm256_and_si256(odd, fifth));
    }
    out.d     = _cvtsh_ss(block.data.data.d);
    out.least = _cvtsh_ss(block.data.data.dmin);
    return out;
}

// Signed bytes, one of each group in their order, as numbers of 16 bits: those of even groups first.
inline __m256i of_bytes(__m128i scales) {
    return _mm256_set_m128i(_mm_srai_epi16(scales, 8), _mm_srai_epi16(_mm_slli_epi16(scales, 8), 8));
}

// Values have an offset of 32, which is a minimum: the scale, times 32.
inline Superblock read(const block_q6_K & block) {
    Superblock    out;
    const __m256i high_bits = _mm256_set1_epi8(0x30);
    for (int half = 0; half < 2; half++) {
        const __m256i high   = _mm256_loadu_si256((const __m256i *) (block.qh + 32 * half));
        const __m256i first  = _mm256_loadu_si256((const __m256i *) (block.ql + 64 * half));
        const __m256i second = _mm256_loadu_si256((const __m256i *) (block.ql + 64 * half + 32));
        const auto    join   = [&](__m256i low, __m256i shifted) {
            return _mm256_or_si256(half_bytes(low), _mm256_and_si256(shifted, high_bits));
        };
        __m256i * bytes = out.bytes + 4 * half;
        bytes[0]        = join(first, _mm256_slli_epi16(high, 4));
        bytes[1]        = join(second, _mm256_slli_epi16(high, 2));
        bytes[2]        = join(_mm256_srli_epi16(first, 4), high);
        bytes[3]        = join(_mm256_srli_epi16(second, 4), _mm256_srli_epi16(high, 2));
    }
    out.scales = of_bytes(_mm_loadu_si128((const __m128i *) block.scales));
    out.minima = out.scales;
    out.d      = _cvtsh_ss(block.d);
    out.least  = 32 * out.d;
    return out;
}

// Scales of six bits with an offset of 32, twelve bytes: the lower four bits of eight of them in a byte's halves, then the upper
// two of sixteen, each four bytes apart.
inline Superblock read(const block_q3_K & block) {
    Superblock    out;
    const __m256i high = _mm256_loadu_si256((const __m256i *) block.hmask);  // bit i of each byte: of block i
    const __m256i two  = _mm256_set1_epi8(3);
    const __m256i one  = _mm256_set1_epi8(4);
    for (int i = 0; i < BLOCKS; i++) {
        const __m256i packed = _mm256_loadu_si256((const __m256i *) block.qs + i / 4);
        const __m256i third  = i < 2 ? _mm256_slli_epi16(high, 2 - i) : _mm256_srli_epi16(high, i - 2);
        const __m256i lower  = _mm256_and_si256(_mm256_srli_epi16(packed, 2 * (i % 4)), two);
        out.bytes[i]         = _mm256_or_si256(lower, _mm256_and_si256(third, one));
    }
    const __m128i words  = _mm_loadu_si128((const __m128i *) block.scales);  // and four bytes of what follows
    const __m128i halves = _mm_srlv_epi32(_mm_shuffle_epi32(words, 0x44), _mm_setr_epi32(0, 0, 4, 4));
    const __m128i pairs  = _mm_srlv_epi32(_mm_shuffle_epi32(words, 0xAA), _mm_setr_epi32(0, 2, 4, 6));
    const __m128i upper  = _mm_slli_epi16(_mm_and_si128(pairs, _mm_set1_epi8(3)), 4);
    const __m128i six    = _mm_or_si128(_mm_and_si128(halves, _mm_set1_epi8(15)), upper);
    const __m128i scales = _mm_sub_epi8(six, _mm_set1_epi8(32));
    out.scales           = of_bytes(scales);
    out.minima           = out.scales;
    out.d                = _cvtsh_ss(block.d);
    out.least            = 4 * out.d;
    return out;
}

// Each lane gets a block's scale: four bits, two more in `scales_h`, less 32.
inline __m256i scales_of(const block_iq4_xs & block) {
    int32_t lower;
    memcpy(&lower, block.scales_l, sizeof(lower));
    const __m256i places = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i four   = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(lower), places), _mm256_set1_epi32(15));
    const __m256i twice  = _mm256_srlv_epi32(_mm256_set1_epi32(block.scales_h), _mm256_srli_epi32(places, 1));
    const __m256i upper  = _mm256_slli_epi32(_mm256_and_si256(twice, _mm256_set1_epi32(3)), 4);
    return _mm256_sub_epi32(_mm256_or_si256(four, upper), _mm256_set1_epi32(32));
}

// Eight numbers as numbers of 16 bits, twice.
inline __m256i in_both_halves(__m256i numbers) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(numbers, numbers), 0x88);
}

// Values of a table, which have an offset of 128.
inline Superblock read(const block_iq4_xs & block) {
    Superblock    out;
    const __m256i table = _mm256_xor_si256(_mm256_broadcastsi128_si256(nonlinear_values()), _mm256_set1_epi8(-128));
    for (int i = 0; i < BLOCKS; i++) {
        const __m128i packed = _mm_loadu_si128((const __m128i *) block.qs + i);
        const __m256i both   = _mm256_set_m128i(_mm_srli_epi16(packed, 4), packed);
        out.bytes[i]         = _mm256_shuffle_epi8(table, half_bytes(both));
    }
    out.scales = in_both_halves(scales_of(block));
    out.minima = out.scales;
    out.d      = _cvtsh_ss(block.d);
    out.least  = 128 * out.d;
    return out;
}

// GROUP: values with the same scale. SHORTS: vectors whose products of pairs fit into 16 bits together. IS_WIDE: only
// products of 32 bits hold those of its bytes.
template <class Block> struct Layout;

template <> struct Layout<block_q4_K> {
    static constexpr int  GROUP   = 32;
    static constexpr int  SHORTS  = 8;
    static constexpr bool IS_WIDE = false;
};

template <> struct Layout<block_q5_K> {
    static constexpr int  GROUP   = 32;
    static constexpr int  SHORTS  = 4;
    static constexpr bool IS_WIDE = false;
};

template <> struct Layout<block_q6_K> {
    static constexpr int  GROUP   = 16;
    static constexpr int  SHORTS  = 2;
    static constexpr bool IS_WIDE = false;
};

template <> struct Layout<block_q3_K> {
    static constexpr int  GROUP   = 16;
    static constexpr int  SHORTS  = 4;
    static constexpr bool IS_WIDE = false;
};

template <> struct Layout<block_iq4_xs> {
    static constexpr int  GROUP   = 32;
    static constexpr int  SHORTS  = 0;
    static constexpr bool IS_WIDE = true;
};

// Even groups in the lower half and odd ones in the upper: in their order.
inline __m256i in_order(__m256i halves) {
    const __m128i even = _mm256_castsi256_si128(halves);
    const __m128i odd  = _mm256_extracti128_si256(halves, 1);
    return _mm256_set_m128i(_mm_unpackhi_epi16(even, odd), _mm_unpacklo_epi16(even, odd));
}

// Products of such a type. Activations are quantised as Q8_K.
template <class Block> struct SuperblockProduct {
    using Weights = Block;

    // So many tokens are multiplied a block at a time: more do not fit into the innermost cache beside a panel.
    static constexpr int64_t SOME_TOKENS = 16;

    static constexpr int  GROUP   = Layout<Block>::GROUP;
    static constexpr bool IS_WIDE = Layout<Block>::IS_WIDE;
    // Vectors whose products are added before they are multiplied by the scale of their group.
#    ifdef JAN_SERVE_VNNI
    static constexpr int STEP = GROUP / 4;
#    else
    static constexpr int STEP = Layout<Block>::SHORTS;
#    endif

    // The same superblock of some rows.
    struct Panel {
        float   d[PANEL_ROWS];
        float   least[PANEL_ROWS];
        int8_t  bytes[PANEL_ROWS * QK_K];              // four of each row, then the next four
        int16_t scales[QK_K / GROUP][2 * PANEL_ROWS];  // of 32 bits with VNNI, else twice for each row
        int16_t minima[BLOCKS][2 * PANEL_ROWS];        // of each row, two in the order of a superblock's minima
    };

    // A superblock of activations. sums: of groups of 16, in the order of a superblock's minima.
    struct Activations {
        int8_t  values[QK_K];
        int16_t sums[2 * BLOCKS];
        float   scale;
    };

    static void quantise(const float * values, Activations & out) {
        const float largest = largest_of<QK_K>(values);
        const float inverse = largest ? 127 / largest : 0;
        out.scale           = largest ? 1 / inverse : 0;
        for (int i = 0; i < BLOCKS; i++) {
            const __m256i bytes = as_bytes(values + 32 * i, inverse);
            const __m128i sums  = sums_of_halves(bytes);
            _mm256_storeu_si256((__m256i *) out.values + i, bytes);
            out.sums[i]          = (int16_t) _mm_extract_epi32(sums, 0);
            out.sums[BLOCKS + i] = (int16_t) _mm_extract_epi32(sums, 1);
        }
    }

    // Prefetches SHARE bytes of `next` for each row.
    template <size_t SHARE> static void pack(const Block * const * rows, int64_t block, Panel * panel, const char * next) {
        for (int64_t part = 0; part < PARTS; part++) {
            pack_part<SHARE>(rows + part * PART_ROWS, block, part, panel, next + part * PART_ROWS * SHARE);
        }
    }

    // `totals` get the products of a panel with the superblock of each of N rows of activations.
    template <int N>
    static JAN_SERVE_INLINE void add(const Panel & panel, const Activations * const * activations, int64_t block, Floats * totals) {
        const int8_t * values[N];
        Ints           sums[N];
        Ints           minima[N];
        for (int j = 0; j < N; j++) {
            values[j] = activations[j][block].values;
            sums[j]   = Ints{};
            minima[j] = Ints{};
        }
        // Unrolled, the loops spill sums with Clang.
#    pragma GCC unroll 1
        for (int first = 0; first < QK_K / 4; first += STEP) {
            const Ints * weights = (const Ints *) panel.bytes + first;
            const Ints   scales  = load<Ints>(panel.scales[4 * first / GROUP]);
#    ifdef JAN_SERVE_VNNI
            Ints products[N] = {};
            add_fours<N, STEP>(weights, values, products);
            for (int j = 0; j < N; j++) {
                sums[j] = add_multiplied(sums[j], products[j], scales);
                values[j] += 4 * STEP;
            }
#    else
            Ints shorts[N];
            sum_pairs<N, STEP>(weights, values, shorts);
            for (int j = 0; j < N; j++) {
                sums[j] = add_pairs(sums[j], shorts[j], scales);
                values[j] += 4 * STEP;
            }
#    endif
        }
#    pragma GCC unroll 1
        for (int i = 0; i < BLOCKS; i++) {
            const Ints two = load<Ints>(panel.minima[i]);
            for (int j = 0; j < N; j++) {
                minima[j] = add_pairs(minima[j], two, four_bytes((const int8_t *) (activations[j][block].sums + 2 * i)));
            }
        }
        const Floats d     = load<Floats>(panel.d);
        const Floats least = load<Floats>(panel.least);
        for (int j = 0; j < N; j++) {
            const float scale = activations[j][block].scale;
            totals[j]         = add_scaled(totals[j], sums[j], scaled(d, scale));
            totals[j]         = subtract_scaled(totals[j], minima[j], scaled(least, scale));
        }
    }

    // The products of eight rows with each of N rows of activations, from the weights as they lie. A row after the other, so that
    // memory is read in its order.
    template <int N>
    static void multiply_few(const Block * const * rows, int64_t blocks, const Activations * const * activations, const char *,
                             __m256 * products) {
        float totals[N][PART_ROWS];
        for (int row = 0; row < PART_ROWS; row++) {
#    ifdef JAN_SERVE_WIDE
            if constexpr (IS_WIDE) {
                multiply_wide<N>(rows[row], blocks, activations, totals[0] + row);
                continue;
            }
#    endif
            multiply_row<N>(rows[row], blocks, activations, totals[0] + row);
        }
        for (int j = 0; j < N; j++) {
            products[j] = _mm256_loadu_ps(totals[j]);
        }
    }

  private:
    template <size_t SHARE>
    static void pack_part(const Block * const * rows, int64_t block, int64_t part, Panel * panel, const char * next) {
        Superblock read_rows[PART_ROWS];
        __m256i    column[PART_ROWS];
        for (int row = 0; row < PART_ROWS; row++) {
            prefetch<SHARE>(next + row * SHARE);
            read_rows[row]                       = read(rows[row][block]);
            panel->d[part * PART_ROWS + row]     = read_rows[row].d;
            panel->least[part * PART_ROWS + row] = read_rows[row].least;
        }
        const auto store = [part](void * of_all_rows, __m256i of_part) {
            _mm256_storeu_si256((__m256i *) of_all_rows + part, of_part);
        };
        for (int i = 0; i < BLOCKS; i++) {
            for (int row = 0; row < PART_ROWS; row++) {
                column[row] = read_rows[row].bytes[i];
            }
            transpose(column);
            for (int four = 0; four < 8; four++) {
                store((Ints *) panel->bytes + 8 * i + four, column[four]);
            }
        }
        for (int row = 0; row < PART_ROWS; row++) {
            column[row] = read_rows[row].minima;
        }
        transpose(column);
        for (int i = 0; i < BLOCKS; i++) {
            store(panel->minima[i], column[i]);
        }
        for (int row = 0; row < PART_ROWS; row++) {
            column[row] = in_order(read_rows[row].scales);
        }
        transpose(column);
        for (int i = 0; i < BLOCKS; i++) {
            const __m256i even = _mm256_slli_epi32(column[i], 16);
            const __m256i odd  = column[i];
            if (GROUP == 32) {
                store(panel->scales[i], scale_of(even));
            } else {
                store(panel->scales[2 * i], scale_of(even));
                store(panel->scales[2 * i + 1], scale_of(odd));
            }
        }
    }

    // From the upper 16 bits of each lane: what the products of a group are multiplied with.
    static __m256i scale_of(__m256i numbers) {
#    ifdef JAN_SERVE_VNNI
        return _mm256_srai_epi32(numbers, 16);
#    else
        return _mm256_blend_epi16(numbers, _mm256_srli_epi32(numbers, 16), 0x55);
#    endif
    }

#    ifdef JAN_SERVE_WIDE
    // As `multiply_row`, for bytes of a table, two blocks to a vector.
    template <int N>
    static void multiply_wide(const Block * row, int64_t blocks, const Activations * const * activations, float * products) {
        const __m512i offset = _mm512_set1_epi8(-128);
        const __m512i table  = _mm512_xor_si512(_mm512_broadcast_i32x4(nonlinear_values()), offset);
        const __m512i twice  = _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3);
        const __m512i halves = _mm512_setr_epi64(0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0, 0x0004000400040004,
                                                 0x0004000400040004);
        float totals[N] = {};
        for (int64_t block = 0; block < blocks; block++) {
            prefetch<sizeof(Block)>((const char *) (row + block) + AHEAD);
            const __m256i scales = scales_of(row[block]);
            const __m256i minima  = in_both_halves(scales);
            const float   d       = _cvtsh_ss(row[block].d);
            __m512i       sums[N] = {};
            __m512i       pick    = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
            for (int i = 0; i < BLOCKS / 2; i++) {
                const __m256i packed = _mm256_loadu_si256((const __m256i *) row[block].qs + i);
                const __m512i lower  = _mm512_permutexvar_epi64(twice, _mm512_castsi256_si512(packed));
                const __m512i four   = _mm512_and_si512(_mm512_srlv_epi16(lower, halves), _mm512_set1_epi8(15));
                const __m512i bytes  = _mm512_shuffle_epi8(table, four);
                const __m512i scale  = _mm512_permutexvar_epi32(pick, _mm512_castsi256_si512(scales));
                for (int j = 0; j < N; j++) {
                    const __m512i values = load<__m512i>(activations[j][block].values + 64 * i);
                    sums[j]              = add_multiplied(sums[j], add_products(_mm512_setzero_si512(), bytes, values), scale);
                }
                pick = _mm512_add_epi32(pick, _mm512_set1_epi32(2));
            }
            for (int j = 0; j < N; j++) {
                const Activations & column = activations[j][block];
                const __m256i       sum = _mm256_add_epi32(_mm512_castsi512_si256(sums[j]), _mm512_extracti64x4_epi64(sums[j], 1));
                totals[j] = add_sums(sum, minima, column, d, 128 * d, totals[j]);
            }
        }
        for (int j = 0; j < N; j++) {
            products[j * PART_ROWS] = totals[j];
        }
    }
#    endif

    // `products[j * PART_ROWS]` gets the product of a row of weights with row j of activations.
    template <int N>
    static void multiply_row(const Block * row, int64_t blocks, const Activations * const * activations, float * products) {
        float totals[N] = {};
        for (int64_t block = 0; block < blocks; block++) {
            prefetch<sizeof(Block)>((const char *) (row + block) + AHEAD);
            const Superblock weights = read(row[block]);
            for (int j = 0; j < N; j++) {
                const Activations & column = activations[j][block];
                totals[j] = add_sums(multiply(weights, column.values), weights.minima, column, weights.d, weights.least, totals[j]);
            }
        }
        for (int j = 0; j < N; j++) {
            products[j * PART_ROWS] = totals[j];
        }
    }

    // A superblock's sums, whose lanes are added, and its minima.
    static float add_sums(__m256i sums, __m256i minima, const Activations & column, float d, float least, float total) {
        const __m256i of_minima = _mm256_madd_epi16(minima, load<__m256i>(column.sums));
        const __m256  both      = _mm256_cvtepi32_ps(add_lanes(sums, of_minima));
        total                   = std::fma(_mm256_cvtss_f32(both), d * column.scale, total);
        return std::fma(-_mm_cvtss_f32(_mm256_extractf128_ps(both, 1)), least * column.scale, total);
    }

    // Each lane of the lower half is the sum of `a`, each of the upper that of `b`.
    static __m256i add_lanes(__m256i a, __m256i b) {
        const __m256i fours = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
        const __m256i twos  = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0x4E));
        return _mm256_add_epi32(twos, _mm256_shuffle_epi32(twos, 0xB1));
    }

    // The sum of the lanes is that of the products.
    static __m256i multiply(const Superblock & weights, const int8_t * activations) {
        __m256i sums[2] = {};  // the additions of one would wait for each other
        __m256i pick    = _mm256_set1_epi16(0x0100);  // the bytes of the first number of each half
        for (int i = 0; i < BLOCKS; i++) {
            const __m256i pairs = _mm256_maddubs_epi16(weights.bytes[i], load<__m256i>(activations + 32 * i));
            sums[i % 2]         = add_pairs(sums[i % 2], pairs, _mm256_shuffle_epi8(weights.scales, pick));
            pick                = _mm256_add_epi8(pick, _mm256_set1_epi8(2));
        }
        return _mm256_add_epi32(sums[0], sums[1]);
    }
};

}  // namespace jan_serve
#endif
