// Superblocks whose values are points of a grid: IQ2 and IQ3. A table has the four or eight magnitudes of each point; bits beside a
// point's place in the table give their signs.
#pragma once

#include <algorithm>

#include "superblock.h"

#ifdef JAN_SERVE_PRODUCTS
#    define GGML_COMMON_IMPL_CPP
#    include "ggml-common.h"

#    if defined(JAN_SERVE_WIDE) && defined(__AVX512VBMI__) && defined(__BMI2__)
#        define JAN_SERVE_CODES 1  // tables are searched in vectors
#    endif

namespace jan_serve {

inline __m256i vector_at(const void * bytes, int number = 0) {
    return _mm256_loadu_si256((const __m256i *) bytes + number);
}

// Bytes whose seven lower bits are given get an eighth that makes the number of their bits even.
inline __m256i with_parity(__m256i sevens) {
#    ifdef __GFNI__
    return _mm256_gf2p8affine_epi64_epi8(sevens, _mm256_set1_epi64x(0x010204081020407F), 0);
#    else
    const __m128i sixteen = _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
    const __m256i odd     = _mm256_broadcastsi128_si256(sixteen);
    const __m256i lower   = _mm256_set1_epi8(15);
    const __m256i low     = _mm256_shuffle_epi8(odd, _mm256_and_si256(sevens, lower));
    const __m256i high    = _mm256_shuffle_epi8(odd, _mm256_and_si256(_mm256_srli_epi16(sevens, 4), lower));
    return _mm256_or_si256(sevens, _mm256_xor_si256(low, high));
#    endif
}

// The signs of eight blocks, whose words have seven for each eight values in their lower 28 bits.
inline __m256i signs_of(__m256i words) {
#    ifdef JAN_SERVE_CODES
    const __m256i places = _mm256_set1_epi64x(0x352E2720150E0700);
    return with_parity(_mm256_and_si256(_mm256_multishift_epi64_epi8(places, words), _mm256_set1_epi8(0x7F)));
#    else
    const auto byte = [&](int i) { return _mm256_and_si256(_mm256_slli_epi32(words, i), _mm256_set1_epi32(0x7F << 8 * i)); };
    return with_parity(_mm256_or_si256(_mm256_or_si256(byte(0), byte(1)), _mm256_or_si256(byte(2), byte(3))));
#    endif
}

// Bytes that hold the numbers of two groups in their halves.
inline __m256i halves_of(const uint8_t * numbers) {
    const __m128i both = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *) numbers));
    return _mm256_set_m128i(_mm_srli_epi16(both, 4), _mm_and_si128(both, _mm_set1_epi16(15)));
}

// Of 32 numbers of 16 bits, the eight from bit FIRST on.
template <int FIRST> inline __m256i bytes_of(const uint16_t * numbers) {
    const auto half = [&](int i) {
        return _mm256_and_si256(_mm256_srli_epi16(vector_at(numbers, i), FIRST), _mm256_set1_epi16(255));
    };
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(half(0), half(1)), 0xD8);
}

// Of 16 words, the even ones or the odd ones.
template <bool IS_ODD> inline __m256i words_of(const uint16_t * words) {
    const auto   half   = [&](int i) { return _mm256_castsi256_ps(vector_at(words, i)); };
    const __m256 chosen = _mm256_shuffle_ps(half(0), half(1), IS_ODD ? 0xDD : 0x88);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(chosen), 0xD8);
}

#    ifdef JAN_SERVE_CODES
// Places of up to 64 points: lower bytes, and bits 8 and 9 of all.
struct PointPlaces {
    __m512i  low;
    uint64_t eighth = 0;
    uint64_t ninth  = 0;
};

inline uint64_t eight_bytes(const uint8_t * bytes) {
    uint64_t eight;
    memcpy(&eight, bytes, sizeof(eight));
    return eight;
}
#    else
struct PointPlaces {
    uint16_t all[QK_K / 4];

    // Sixteen of them from `first` on. `high`: what the bits beyond eight are when they are moved up by `factors`.
    void set(int first, const uint8_t * low, __m256i high, __m256i factors, int16_t mask) {
        const __m256i moved = _mm256_and_si256(_mm256_mullo_epi16(high, factors), _mm256_set1_epi16(mask));
        const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *) (low + first)));
        _mm256_storeu_si256((__m256i *) (all + first), _mm256_or_si256(bytes, moved));
    }

    template <class Point> const uint16_t * of_block(int i) const { return all + 32 / sizeof(Point) * i; }
};

// Bytes of a superblock, eight bytes apart.
struct BytePlaces {
    const uint8_t * all;

    template <class Point> const uint8_t * of_block(int i) const { return all + 8 * i; }
};

// Of eight bytes, numbers of 16 bits: each of them TIMES times, from the byte `first` on.
template <int TIMES> inline __m256i repeated(const uint8_t * bytes, int first) {
    const auto    at     = [&](int i) { return (int64_t) (0x8000800080008000 + 0x0001000100010001 * (first + 4 * i / TIMES)); };
    const __m256i places = _mm256_setr_epi64x(at(0), at(1), at(2), at(3));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadl_epi64((const __m128i *) bytes)), places);
}
#    endif

// How a type tells what its points are. A value is a magnitude or its negative, times 2 s + 1 for its group's number s, times the
// superblock's scale, times UNIT.
template <class Block> struct Grid;

template <> struct Grid<block_iq2_xxs> {
    using Point                           = uint64_t;
    static constexpr int     GROUP        = 32;
    static constexpr float   UNIT         = 0.125f;
    static constexpr int     SIZE         = 256;
    static constexpr uint8_t MAGNITUDES[] = { 8, 25, 43 };

    static const Point * table() { return iq2xxs_grid; }
    static __m256i signs(const block_iq2_xxs & block) { return signs_of(words_of<true>(block.qs)); }
    static __m256i scales(const block_iq2_xxs & block) { return in_both_halves(_mm256_srli_epi32(words_of<true>(block.qs), 28)); }

#    ifdef JAN_SERVE_CODES
    static PointPlaces places(const block_iq2_xxs & block) { return { _mm512_zextsi256_si512(words_of<false>(block.qs)) }; }
#    else
    static BytePlaces places(const block_iq2_xxs & block) { return { (const uint8_t *) block.qs }; }
#    endif
};

template <> struct Grid<block_iq2_xs> : Grid<block_iq2_xxs> {
    static constexpr int GROUP = 16;
    static constexpr int SIZE  = 512;

    static const Point * table() { return iq2xs_grid; }
    static __m256i signs(const block_iq2_xs & block) { return with_parity(bytes_of<9>(block.qs)); }
    static __m256i scales(const block_iq2_xs & block) { return halves_of(block.scales); }

    static PointPlaces places(const block_iq2_xs & block) {
        PointPlaces places;
#    ifdef JAN_SERVE_CODES
        places.low    = _mm512_zextsi256_si512(bytes_of<0>(block.qs));
        places.eighth = (uint32_t) _mm256_movemask_epi8(bytes_of<1>(block.qs));
#    else
        for (int i = 0; i < 2; i++) {
            const __m256i nine = _mm256_and_si256(vector_at(block.qs, i), _mm256_set1_epi16(511));
            _mm256_storeu_si256((__m256i *) places.all + i, nine);
        }
#    endif
        return places;
    }
};

template <> struct Grid<block_iq2_s> : Grid<block_iq2_xs> {
    static constexpr int SIZE = 1024;

    static const Point * table() { return iq2s_grid; }
    static __m256i signs(const block_iq2_s & block) { return vector_at(block.qs, 1); }
    static __m256i scales(const block_iq2_s & block) { return halves_of(block.scales); }

    static PointPlaces places(const block_iq2_s & block) {
        PointPlaces places;
#    ifdef JAN_SERVE_CODES
        places.low    = _mm512_zextsi256_si512(vector_at(block.qs));
        places.eighth = _pext_u64(eight_bytes(block.qh), 0x5555555555555555);
        places.ninth  = _pext_u64(eight_bytes(block.qh), 0xAAAAAAAAAAAAAAAA);
#    else
        for (int i = 0; i < 2; i++) {
            places.set(16 * i, block.qs, repeated<4>(block.qh, 4 * i), _mm256_set1_epi64x(0x0004001000400100), 0x300);
        }
#    endif
        return places;
    }
};

template <> struct Grid<block_iq3_xxs> {
    using Point                           = uint32_t;
    static constexpr int     GROUP        = 32;
    static constexpr float   UNIT         = 0.25f;
    static constexpr int     SIZE         = 256;
    static constexpr uint8_t MAGNITUDES[] = { 4, 12, 20, 28, 36, 44, 52, 62 };

    static const Point * table() { return iq3xxs_grid; }
    static __m256i signs(const block_iq3_xxs & block) { return signs_of(vector_at(block.qs, 2)); }
    static __m256i scales(const block_iq3_xxs & block) { return in_both_halves(_mm256_srli_epi32(vector_at(block.qs, 2), 28)); }

#    ifdef JAN_SERVE_CODES
    static PointPlaces places(const block_iq3_xxs & block) { return { load<__m512i>(block.qs) }; }
#    else
    static BytePlaces places(const block_iq3_xxs & block) { return { block.qs }; }
#    endif
};

template <> struct Grid<block_iq3_s> {
    using Point                           = uint32_t;
    static constexpr int     GROUP        = 32;
    static constexpr float   UNIT         = 1;
    static constexpr int     SIZE         = 512;
    static constexpr uint8_t MAGNITUDES[] = { 1, 3, 5, 7, 9, 11, 13, 15 };

    static const Point * table() { return iq3s_grid; }
    static __m256i signs(const block_iq3_s & block) { return vector_at(block.signs); }

    static __m256i scales(const block_iq3_s & block) {
        int32_t halves;
        memcpy(&halves, block.scales, sizeof(halves));
        return in_both_halves(fours_of(halves));
    }

    static PointPlaces places(const block_iq3_s & block) {
        PointPlaces places;
#    ifdef JAN_SERVE_CODES
        places.low    = load<__m512i>(block.qs);
        places.eighth = eight_bytes(block.qh);
#    else
        const __m256i factors = _mm256_broadcastsi128_si256(_mm_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2));
        for (int i = 0; i < 4; i++) {
            places.set(16 * i, block.qs, repeated<8>(block.qh, 2 * i), factors, 256);
        }
#    endif
        return places;
    }
};

// What makes the values of a type unsigned: the largest magnitude.
template <class Block> constexpr int offset_of() {
    return Grid<Block>::MAGNITUDES[sizeof(Grid<Block>::MAGNITUDES) - 1];
}

#    ifdef JAN_SERVE_CODES
// The table of a type in vectors. The values of a point are codes in sixteen bits, in two bytes that lie apart.
template <class Block> class Codes {
  public:
    Codes() {
        constexpr int COUNT  = sizeof(Grid<Block>::MAGNITUDES);
        const auto *  sorted = Grid<Block>::MAGNITUDES;
        for (int place = 0; place < SIZE; place++) {
            int codes = 0;
            for (int i = 0; i < NUMBER; i++) {
                const uint8_t magnitude = Grid<Block>::table()[place] >> 8 * i;
                codes |= int(std::find(sorted, sorted + COUNT, magnitude) - sorted) << BITS * i;
            }
            lower[place] = codes;
            upper[place] = codes >> 8;
        }
        for (int i = 0; i < 64; i++) {
            const int magnitude = sorted[i % 8 % COUNT];
            values[i]           = offset_of<Block>() + (i & IS_NEGATIVE ? -magnitude : magnitude);
            shifts[i]           = BITS * (i % 8);
            order[i]            = i / 8 * 8 / NUMBER + i / 2 % (8 / NUMBER) + i % 2 * 64;
        }
    }

    // The bytes of the points at these places, of which 64 values each have their signs in a number.
    JAN_SERVE_INLINE void read(const PointPlaces & places, const uint64_t * signs, __m256i * bytes) const {
        const __mmask64 further[3] = { _mm512_movepi8_mask(places.low), places.eighth, places.ninth };
        const __m512i   low        = find<SIZE>(lower, places.low, further);
        const __m512i   high       = find<SIZE>(upper, places.low, further);
        __m512i         next       = load<__m512i>(order);
        for (int i = 0; i < QK_K / 64; i++) {
            const __m512i points = _mm512_permutex2var_epi8(low, next, high);
            const __m512i moved  = _mm512_multishift_epi64_epi8(load<__m512i>(shifts), points);
            const __m512i codes  = _mm512_and_si512(moved, _mm512_set1_epi8(CODES - 1));
            const __m512i both   = _mm512_mask_add_epi8(codes, signs[i], codes, _mm512_set1_epi8(IS_NEGATIVE));
            _mm512_storeu_si512(bytes + 2 * i, _mm512_shuffle_epi8(load<__m512i>(values), both));
            next = _mm512_add_epi8(next, _mm512_set1_epi8(64 / NUMBER));
        }
    }

  private:
    static constexpr int SIZE        = Grid<Block>::SIZE;
    static constexpr int NUMBER      = sizeof(typename Grid<Block>::Point);  // of a point's values
    static constexpr int BITS        = 16 / NUMBER;                          // of a code
    static constexpr int CODES       = NUMBER == 8 ? 4 : 8;
    static constexpr int IS_NEGATIVE = 8;

    // The byte of each place. A vector's instruction finds one of 128.
    template <int COUNT> static JAN_SERVE_INLINE __m512i find(const uint8_t * table, __m512i places, const __mmask64 * further) {
        if constexpr (COUNT == 128) {
            return _mm512_permutex2var_epi8(load<__m512i>(table), places, load<__m512i>(table + 64));
        } else {
            constexpr int BIT   = COUNT == 256 ? 0 : COUNT == 512 ? 1 : 2;
            const __m512i first = find<COUNT / 2>(table, places, further);
            return _mm512_mask_mov_epi8(first, further[BIT], find<COUNT / 2>(table + COUNT / 2, places, further));
        }
    }

    alignas(64) uint8_t lower[SIZE];
    alignas(64) uint8_t upper[SIZE];
    alignas(64) uint8_t values[64];  // of codes and signs
    alignas(64) uint8_t shifts[64];
    alignas(64) uint8_t order[64];
};

template <class Block> JAN_SERVE_INLINE void read_points(const Block & block, __m256i * bytes) {
    static const Codes<Block> codes;
    alignas(32) uint64_t      signs[QK_K / 64];
    _mm256_store_si256((__m256i *) signs, Grid<Block>::signs(block));
    codes.read(Grid<Block>::places(block), signs, bytes);
}
#    else
// The 32 values of the next points.
template <class Place> JAN_SERVE_INLINE __m256i points(const uint64_t * table, const Place * places) {
    const auto at = [&](int i) { return (int64_t) table[places[i]]; };
    return _mm256_setr_epi64x(at(0), at(1), at(2), at(3));
}

template <class Place> JAN_SERVE_INLINE __m256i points(const uint32_t * table, const Place * places) {
    const auto at = [&](int i) { return (int32_t) table[places[i]]; };
    return _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
}

// Calls `use(i, magnitudes, ones)` with the magnitudes of each block's values, and with -1 for those that are negative.
template <class Block, class Use> JAN_SERVE_INLINE void each_block(const Block & block, Use && use) {
    const auto    places = Grid<Block>::places(block);
    const __m256i bit    = _mm256_set1_epi64x((int64_t) 0x8040201008040201);
    const __m256i order  = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    int32_t       signs[BLOCKS];
    _mm256_storeu_si256((__m256i *) signs, Grid<Block>::signs(block));
#        pragma GCC unroll 4
    for (int i = 0; i < BLOCKS; i++) {
        const __m256i magnitudes = points(Grid<Block>::table(), places.template of_block<typename Grid<Block>::Point>(i));
        const __m256i spread     = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(signs[i]), order), bit);
        use(i, magnitudes, _mm256_or_si256(_mm256_cmpeq_epi8(spread, bit), _mm256_set1_epi8(1)));
    }
}

template <class Block> JAN_SERVE_INLINE void read_points(const Block & block, __m256i * bytes) {
    each_block(block, [&](int i, __m256i magnitudes, __m256i ones) {
        bytes[i] = _mm256_add_epi8(_mm256_sign_epi8(magnitudes, ones), _mm256_set1_epi8(offset_of<Block>()));
    });
}
#    endif

// Numbers s of groups become their scales 2 s + 1.
template <class Block> JAN_SERVE_INLINE __m256i grid_scales(const Block & block) {
    const __m256i numbers = Grid<Block>::scales(block);
    return _mm256_add_epi16(_mm256_add_epi16(numbers, numbers), _mm256_set1_epi16(1));
}

template <class Block> JAN_SERVE_INLINE __m128 grid_scale(const Block & block) {
    return _mm_mul_ps(of_half(block.d), _mm_set1_ps(Grid<Block>::UNIT));
}

template <class Block> inline Superblock read(const Block & block) {
    Superblock out;
    read_points(block, (__m256i *) out.bytes);
    out.scales = grid_scales(block);
    out.minima = _mm256_mullo_epi16(out.scales, _mm256_set1_epi16(offset_of<Block>()));
    out.d      = grid_scale(block);
    return out;
}

template <class Block> struct GridLayout : Groups<Grid<Block>::GROUP, (offset_of<Block>() < 32 ? 4 : 1), true> {
    static constexpr bool IS_GRID = true;
};

template <> struct Layout<block_iq2_xxs> : GridLayout<block_iq2_xxs> {};
template <> struct Layout<block_iq2_xs> : GridLayout<block_iq2_xs> {};
template <> struct Layout<block_iq2_s> : GridLayout<block_iq2_s> {};
template <> struct Layout<block_iq3_xxs> : GridLayout<block_iq3_xxs> {};
template <> struct Layout<block_iq3_s> : GridLayout<block_iq3_s> {};

}  // namespace jan_serve
#endif
