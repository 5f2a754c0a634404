// Products of types of weights whose superblocks hold 256 values, in groups of 16 or 32 with scales of their own.
#pragma once

#include <cmath>

#include "grid_superblock.h"
#include "superblock.h"
#include "vectors.h"

#ifdef JAN_SERVE_PRODUCTS
namespace jan_serve {

constexpr size_t AHEAD = 8192;  // bytes by which a row is prefetched

// Even groups in the lower half and odd ones in the upper: in their order.
inline __m256i in_order(__m256i halves) {
    const __m128i even = _mm256_castsi256_si128(halves);
    const __m128i odd  = _mm256_extracti128_si256(halves, 1);
    return _mm256_set_m128i(_mm_unpackhi_epi16(even, odd), _mm_unpacklo_epi16(even, odd));
}

// Where the groups of a superblock lie.
template <class Block> struct Places {
    uint8_t bytes[GROUPS] = {};
    // For each 128 bits of a vector, the number of their group among a superblock's scales, in numbers of 16 and of 32 bits.
    alignas(64) int16_t numbers[VECTORS][sizeof(Ints) / 2] = {};
    alignas(64) int32_t words[VECTORS][sizeof(Ints) / 4]   = {};

    constexpr Places() {
        for (int group = 0; group < GROUPS; group++) {
            const int place = Layout<Block>::place(group);
            const int first = place * 16 % sizeof(Ints);
            bytes[group]    = 16 * place;
            for (int i = first; i < first + 16; i++) {
                numbers[place * 16 / sizeof(Ints)][i / 2] = group % 2 * BLOCKS + group / 2;
                words[place * 16 / sizeof(Ints)][i / 4]   = group % 2 * BLOCKS + group / 2;
            }
        }
    }
};

template <class Block> inline constexpr Places<Block> PLACES;

// Products of such a type. Activations are quantised as Q8_K.
template <class Block> struct SuperblockProduct {
    using Weights = Block;

    // So many tokens are multiplied a block at a time: more do not fit into the innermost cache beside a panel.
    static constexpr int64_t SOME_TOKENS = 16;

    static constexpr int  GROUP      = Layout<Block>::GROUP;
    static constexpr bool IS_SHORT   = Layout<Block>::SHORTS > 0;
    static constexpr bool IS_ONE_SUM = Layout<Block>::IS_ONE_SUM;
    // Bytes between the groups of a block.
    static constexpr int GAP = GROUP == 32 ? 16 * (Layout<Block>::place(1) - 1) : 0;
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

    // A superblock of activations. values: in the order of the weights' bytes. sums: of groups of 16, negative, in the order of a
    // superblock's minima.
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
            for (int odd = 0; odd < 2; odd++) {
                const __m128i group = odd ? _mm256_extracti128_si256(bytes, 1) : _mm256_castsi256_si128(bytes);
                _mm_storeu_si128((__m128i *) out.values + Layout<Block>::place(2 * i + odd), group);
            }
            out.sums[i]          = (int16_t) -_mm_extract_epi32(sums, 0);
            out.sums[BLOCKS + i] = (int16_t) -_mm_extract_epi32(sums, 1);
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
            const int8_t * step[N];
            for (int j = 0; j < N; j++) {
                step[j] = values[j] + (PIECES == 2 ? 4 * first : PLACES<Block>.bytes[first / 4]);
            }
#    ifdef JAN_SERVE_VNNI
            Ints products[N] = {};
            add_fours<N, STEP, GAP>(weights, step, products);
            for (int j = 0; j < N; j++) {
                sums[j] = add_multiplied(sums[j], products[j], scales);
            }
#    else
            Ints shorts[N];
            sum_pairs<N, STEP>(weights, step, shorts);
            for (int j = 0; j < N; j++) {
                sums[j] = add_pairs(sums[j], shorts[j], scales);
            }
#    endif
        }
#    pragma GCC unroll 1
        for (int i = 0; i < BLOCKS; i++) {
            const Ints two = load<Ints>(panel.minima[i]);
            for (int j = 0; j < N; j++) {
                Ints & sum = IS_ONE_SUM ? sums[j] : minima[j];
                sum        = add_pairs(sum, two, four_bytes((const int8_t *) (activations[j][block].sums + 2 * i)));
            }
        }
        const Floats d     = load<Floats>(panel.d);
        const Floats least = load<Floats>(panel.least);
        for (int j = 0; j < N; j++) {
            const float scale = activations[j][block].scale;
            totals[j]         = add_scaled(totals[j], sums[j], scaled(d, scale));
            if (!IS_ONE_SUM) {
                totals[j] = add_scaled(totals[j], minima[j], scaled(least, scale));
            }
        }
    }

    // The products of eight rows with each of N rows of activations, from the weights as they lie. A row after the other, so that
    // memory is read in its order.
    template <int N>
    static void multiply_few(const Block * const * rows, int64_t blocks, const Activations * const * activations, const char *,
                             __m256 * products) {
        float totals[N][PART_ROWS];
        for (int row = 0; row < PART_ROWS; row++) {
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
            read_rows[row]                   = read(rows[row][block]);
            panel->d[part * PART_ROWS + row] = _mm_cvtss_f32(read_rows[row].d);
            if (!IS_ONE_SUM) {
                panel->least[part * PART_ROWS + row] = _mm_cvtss_f32(read_rows[row].least);
            }
        }
        const auto store = [part](void * of_all_rows, __m256i of_part) {
            _mm256_storeu_si256((__m256i *) of_all_rows + part, of_part);
        };
        for (int i = 0; i < BLOCKS; i++) {
            const int even = Layout<Block>::place(2 * i);
            const int odd  = Layout<Block>::place(2 * i + 1);
            for (int row = 0; row < PART_ROWS; row++) {
                const __m128i * groups = (const __m128i *) read_rows[row].bytes;
                column[row]            = _mm256_inserti128_si256(_mm256_castsi128_si256(groups[even]), groups[odd], 1);
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

    // `products[j * PART_ROWS]` gets the product of a row of weights with row j of activations.
    template <int N>
    static void multiply_row(const Block * row, int64_t blocks, const Activations * const * activations, float * products) {
        __m128 totals[N] = {};
        for (int64_t block = 0; block < blocks; block++) {
            prefetch<sizeof(Block)>((const char *) (row + block) + AHEAD);
#    ifndef JAN_SERVE_CODES
            if constexpr (Layout<Block>::IS_GRID) {
                add_points<N>(row[block], block, activations, totals);
                continue;
            }
#    endif
            const Superblock weights = read(row[block]);
            for (int j = 0; j < N; j++) {
                totals[j] = add_superblock(weights, activations[j][block], totals[j]);
            }
        }
        for (int j = 0; j < N; j++) {
            products[j * PART_ROWS] = _mm_cvtss_f32(totals[j]);
        }
    }

#    ifndef JAN_SERVE_CODES
    // Points are multiplied as they are found, with their signs given to the activations.
    template <int N>
    static JAN_SERVE_INLINE void add_points(const Block & weights, int64_t block, const Activations * const * activations,
                                            __m128 * totals) {
        const __m256i scales  = grid_scales(weights);
        const __m128  d       = grid_scale(weights);
        __m256i       pick    = _mm256_set1_epi16(0x0100);
        __m256i       sums[N] = {};
        each_block(weights, [&](int i, __m256i magnitudes, __m256i ones) {
            const __m256i scale = _mm256_shuffle_epi8(scales, pick);
            for (int j = 0; j < N; j++) {
                const __m256i values = _mm256_sign_epi8(load<__m256i>(activations[j][block].values + 32 * i), ones);
                sums[j]              = add_pairs(sums[j], _mm256_maddubs_epi16(magnitudes, values), scale);
            }
            pick = _mm256_add_epi8(pick, _mm256_set1_epi8(2));
        });
        for (int j = 0; j < N; j++) {
            totals[j] = add_sum(sums[j], d, activations[j][block].scale, totals[j]);
        }
    }
#    endif

    static JAN_SERVE_INLINE __m128 add_superblock(const Superblock & weights, const Activations & column, __m128 total) {
        const __m256i sums   = load<__m256i>(column.sums);
        const __m256i minima = _mm256_madd_epi16(weights.minima, sums);
        if constexpr (IS_ONE_SUM) {
            return add_sum(multiply(weights, column.values, minima), weights.d, column.scale, total);
        } else {
            const __m256i products = multiply(weights, column.values, _mm256_setzero_si256());
            const __m256  both     = _mm256_cvtepi32_ps(add_lanes(products, minima));
            const __m128  scale    = _mm_set1_ps(column.scale);
            total                  = _mm_fmadd_ps(_mm256_castps256_ps128(both), _mm_mul_ps(weights.d, scale), total);
            return _mm_fmadd_ps(_mm256_extractf128_ps(both, 1), _mm_mul_ps(weights.least, scale), total);
        }
    }

    // Adds a superblock's sum, which is that of the lanes.
    static JAN_SERVE_INLINE __m128 add_sum(__m256i lanes, __m128 d, float scale, __m128 total) {
        const __m128i fours = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
        const __m128i twos  = _mm_add_epi32(fours, _mm_shuffle_epi32(fours, 0x4E));
        const __m128i sum   = _mm_add_epi32(twos, _mm_shuffle_epi32(twos, 0xB1));
        return _mm_fmadd_ps(_mm_cvtepi32_ps(sum), _mm_mul_ps(d, _mm_set1_ps(scale)), total);
    }

    // Each lane of the lower half is the sum of `a`, each of the upper that of `b`.
    static JAN_SERVE_INLINE __m256i add_lanes(__m256i a, __m256i b) {
        const __m256i fours = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
        const __m256i twos  = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0x4E));
        return _mm256_add_epi32(twos, _mm256_shuffle_epi32(twos, 0xB1));
    }

    // The sum of the lanes is that of the products and of `start`.
    static JAN_SERVE_INLINE __m256i multiply(const Superblock & weights, const int8_t * activations, __m256i start) {
        const auto values  = [&](int i) { return load<Ints>(activations + i * sizeof(Ints)); };
        Ints       sums[2] = {};  // the additions of one would wait for each other
#    ifdef JAN_SERVE_WIDE
        sums[0] = _mm512_zextsi256_si512(start);
        if constexpr (IS_SHORT) {
            const __m512i scales = _mm512_zextsi256_si512(weights.scales);
            for (int i = 0; i < VECTORS; i++) {
                const __m512i scale = _mm512_permutexvar_epi16(load<__m512i>(PLACES<Block>.numbers[i]), scales);
                sums[i % 2]         = add_pairs(sums[i % 2], _mm512_maddubs_epi16(weights.bytes[i], values(i)), scale);
            }
        } else {
            const __m512i scales = _mm512_cvtepi16_epi32(weights.scales);
            for (int i = 0; i < VECTORS; i += 2) {  // both hold the same blocks
                const __m512i first    = add_products(_mm512_setzero_si512(), weights.bytes[i], values(i));
                const __m512i products = add_products(first, weights.bytes[i + 1], values(i + 1));
                const __m512i scale    = _mm512_permutexvar_epi32(load<__m512i>(PLACES<Block>.words[i]), scales);
                sums[i / 2]            = add_multiplied(sums[i / 2], products, scale);
            }
        }
        const __m512i sum = _mm512_add_epi32(sums[0], sums[1]);
        return _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
#    else
        sums[0]      = start;
        __m256i pick = _mm256_set1_epi16(0x0100);  // the bytes of the first number of each half
        for (int i = 0; i < VECTORS; i++) {
            const __m256i pairs = _mm256_maddubs_epi16(weights.bytes[i], values(i));
            sums[i % 2]         = add_pairs(sums[i % 2], pairs, _mm256_shuffle_epi8(weights.scales, pick));
            pick                = _mm256_add_epi8(pick, _mm256_set1_epi8(2));
        }
        return _mm256_add_epi32(sums[0], sums[1]);
#    endif
    }
};

}  // namespace jan_serve
#endif
