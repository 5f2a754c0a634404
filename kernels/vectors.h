// Vectors of the products on x86 processors with AVX2.
#pragma once

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    define JAN_SERVE_PRODUCTS 1
#    if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#        define JAN_SERVE_WIDE 1  // a vector has 512 bits
#    endif
#    if defined(JAN_SERVE_WIDE) || defined(__AVXVNNI__)
#        define JAN_SERVE_VNNI 1
#    endif
#endif

#ifdef JAN_SERVE_PRODUCTS
#    include <cstddef>
#    include <cstdint>
#    include <cstring>

#    include <immintrin.h>

#    ifdef _MSC_VER
#        define JAN_SERVE_INLINE __forceinline
#    else
#        define JAN_SERVE_INLINE inline __attribute__((always_inline))
#    endif

namespace jan_serve {

// Rows of weights that are unpacked together: a vector of 256 bits has a lane for each. A panel has one or two such parts.
constexpr int64_t PART_ROWS = 8;

#    ifdef JAN_SERVE_WIDE
using Ints   = __m512i;
using Floats = __m512;
#    else
using Ints   = __m256i;
using Floats = __m256;
#    endif

constexpr int64_t PARTS      = sizeof(Ints) / sizeof(__m256i);
constexpr int64_t PANEL_ROWS = PARTS * PART_ROWS;

// Each lane gets the products of its four unsigned and its four signed bytes.
inline __m256i add_products(__m256i sums, __m256i u8, __m256i s8) {
#    ifdef JAN_SERVE_WIDE
    return _mm256_dpbusd_epi32(sums, u8, s8);
#    elif defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sums, u8, s8);
#    else
    return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(u8, s8), _mm256_set1_epi16(1)));
#    endif
}

// Each lane gets the products of its two numbers of 16 bits.
inline __m256i add_pairs(__m256i sums, __m256i a, __m256i b) {
#    ifdef JAN_SERVE_WIDE
    return _mm256_dpwssd_epi32(sums, a, b);
#    elif defined(__AVXVNNI__)
    return _mm256_dpwssd_avx_epi32(sums, a, b);
#    else
    return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
#    endif
}

inline __m256 add_scaled(__m256 total, __m256i sums, __m256 scales) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scales, total);
}

inline __m256 scaled(__m256 scales, float scale) {
    return _mm256_mul_ps(scales, _mm256_set1_ps(scale));
}

#    ifdef JAN_SERVE_WIDE
inline __m512i add_products(__m512i sums, __m512i u8, __m512i s8) {
    return _mm512_dpbusd_epi32(sums, u8, s8);
}

inline __m512i add_pairs(__m512i sums, __m512i a, __m512i b) {
    return _mm512_dpwssd_epi32(sums, a, b);
}

inline __m512 add_scaled(__m512 total, __m512i sums, __m512 scales) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scales, total);
}

inline __m512 scaled(__m512 scales, float scale) {
    return _mm512_mul_ps(scales, _mm512_set1_ps(scale));
}

inline Ints each_lane(int32_t value) {
    return _mm512_set1_epi32(value);
}

inline Ints add_multiplied(Ints sums, Ints a, Ints b) {
    return _mm512_add_epi32(sums, _mm512_mullo_epi32(a, b));
}
#    else
inline Ints each_lane(int32_t value) {
    return _mm256_set1_epi32(value);
}

inline Ints add_multiplied(Ints sums, Ints a, Ints b) {
    return _mm256_add_epi32(sums, _mm256_mullo_epi32(a, b));
}
#    endif

template <class Vector> inline Vector load(const void * lanes) {
    Vector vector;
    memcpy(&vector, lanes, sizeof(vector));
    return vector;
}

#    ifdef JAN_SERVE_WIDE
#        define JAN_SERVE_OP(name) _mm512_##name
#        define JAN_SERVE_BITS(name) _mm512_##name##_si512

// Adds 16 to each byte for which `others` has the bit that `bits` has.
inline Ints add_sixteen(Ints bytes, Ints others, Ints bits) {
    return _mm512_mask_add_epi8(bytes, _mm512_test_epi8_mask(others, bits), bytes, _mm512_set1_epi8(16));
}

// The half floats in the lower halves of the lanes.
inline Floats as_floats(Ints halves) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves));
}

// Its 128 bits number i are `at(i)`.
template <class At> JAN_SERVE_INLINE Ints of_parts(At && at) {
    const Ints first = _mm512_inserti32x4(_mm512_castsi128_si512(at(0)), at(1), 1);
    return _mm512_inserti32x4(_mm512_inserti32x4(first, at(2), 2), at(3), 3);
}
#    else
#        define JAN_SERVE_OP(name) _mm256_##name
#        define JAN_SERVE_BITS(name) _mm256_##name##_si256

inline Ints add_sixteen(Ints bytes, Ints others, Ints bits) {
    const Ints is_set = _mm256_cmpeq_epi8(_mm256_and_si256(others, bits), bits);
    return _mm256_add_epi8(bytes, _mm256_and_si256(is_set, _mm256_set1_epi8(16)));
}

inline Floats as_floats(Ints halves) {
    const Ints packed = _mm256_packus_epi32(_mm256_and_si256(halves, _mm256_set1_epi32(0xFFFF)), _mm256_setzero_si256());
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}

template <class At> JAN_SERVE_INLINE Ints of_parts(At && at) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(at(0)), at(1), 1);
}
#    endif

// Of sixteen bytes of each row, vector i gets bytes 4 i to 4 i + 3. `at(row)`: where those of a row are.
template <class At> JAN_SERVE_INLINE void load_fours(At && at, Ints * fours) {
    Ints rows[4];
    for (int row = 0; row < 4; row++) {
        rows[row] = of_parts([&](int part) { return _mm_loadu_si128((const __m128i *) at(4 * part + row)); });
    }
    const Ints a = JAN_SERVE_OP(unpacklo_epi32)(rows[0], rows[1]);
    const Ints b = JAN_SERVE_OP(unpacklo_epi32)(rows[2], rows[3]);
    const Ints c = JAN_SERVE_OP(unpackhi_epi32)(rows[0], rows[1]);
    const Ints d = JAN_SERVE_OP(unpackhi_epi32)(rows[2], rows[3]);
    fours[0]     = JAN_SERVE_OP(unpacklo_epi64)(a, b);
    fours[1]     = JAN_SERVE_OP(unpackhi_epi64)(a, b);
    fours[2]     = JAN_SERVE_OP(unpacklo_epi64)(c, d);
    fours[3]     = JAN_SERVE_OP(unpackhi_epi64)(c, d);
}

// The first eight bytes of a block of each row. `at(row)`: where the block is.
struct Heads {
    Ints a, b;

    template <class At> JAN_SERVE_INLINE explicit Heads(At && at) {
        const auto two = [&](int row) {
            const __m128i low = _mm_loadl_epi64((const __m128i *) at(row));
            return _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(low), (const __m64 *) at(row + 1)));
        };
        a = of_parts([&](int part) { return two(4 * part); });
        b = of_parts([&](int part) { return two(4 * part + 2); });
    }

    // Lane i gets four bytes of row i, from its byte FIRST on.
    template <int FIRST> Ints fours() const {
        const Ints   first  = JAN_SERVE_OP(srli_epi64)(a, 8 * FIRST);
        const Ints   second = JAN_SERVE_OP(srli_epi64)(b, 8 * FIRST);
        const Floats found  = JAN_SERVE_OP(shuffle_ps)(load<Floats>(&first), load<Floats>(&second), 0x88);
        return load<Ints>(&found);
    }
};

// The same four bytes in each lane.
inline Ints four_bytes(const int8_t * bytes) {
    int32_t four;
    memcpy(&four, bytes, sizeof(four));
    return each_lane(four);
}

// `sums` get the products of COUNT vectors, which each hold four bytes of each row of weights, with as many bytes of each of N
// rows of activations, of which the second half begins GAP bytes after the end of the first.
template <int N, int COUNT, int GAP = 0>
inline void add_fours(const Ints * weights, const int8_t * const * activations, Ints * sums) {
    for (int i = 0; i < COUNT; i++) {
        const Ints four = load<Ints>(weights + i);
        const int  byte = 4 * i + (2 * i < COUNT ? 0 : GAP);
        for (int j = 0; j < N; j++) {
            sums[j] = add_products(sums[j], four, four_bytes(activations[j] + byte));
        }
    }
}

#    ifndef JAN_SERVE_VNNI
// Sums of the products of pairs of neighbouring bytes, in 16 bits. Weights and activations are those of `add_fours`.
template <int N, int COUNT> inline void sum_pairs(const Ints * weights, const int8_t * const * activations, Ints * sums) {
    for (int i = 0; i < COUNT; i++) {
        const Ints four = load<Ints>(weights + i);
        for (int j = 0; j < N; j++) {
            const Ints pairs = _mm256_maddubs_epi16(four, four_bytes(activations[j] + 4 * i));
            sums[j]          = i ? _mm256_add_epi16(sums[j], pairs) : pairs;
#        ifdef __clang__  // it would compute the products of many fours before it adds them, and spill them
            asm volatile("" : "+x"(sums[j]));
#        endif
        }
    }
}
#    endif

// The values that four bits choose in IQ4_NL and IQ4_XS.
inline __m128i nonlinear_values() {
    return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

// Lane i is 2 to the power of lane i of `exponents`, less 128. Two factors, since the result may be subnormal.
inline __m256 powers_of_two(__m256i exponents) {
    const __m256i half  = _mm256_srli_epi32(exponents, 1);
    const auto    power = [](__m256i exponent) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(63)), 23));
    };
    return _mm256_mul_ps(power(half), power(_mm256_sub_epi32(exponents, half)));
}

#    ifdef JAN_SERVE_WIDE
inline __m512 powers_of_two(__m512i exponents) {
    const __m512i half  = _mm512_srli_epi32(exponents, 1);
    const auto    power = [](__m512i exponent) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(exponent, _mm512_set1_epi32(63)), 23));
    };
    return _mm512_mul_ps(power(half), power(_mm512_sub_epi32(exponents, half)));
}
#    endif

// Lane i is the sum of rows[i].
inline __m256i sums_of(const __m256i * rows) {
    const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(rows[0], rows[1]), _mm256_hadd_epi32(rows[2], rows[3]));
    const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(rows[4], rows[5]), _mm256_hadd_epi32(rows[6], rows[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

#    ifdef JAN_SERVE_WIDE
// The same of rows whose halves are added: lane 2 i is the sum of the lower half of pairs[i], lane 2 i + 1 that of the upper.
inline __m256i sums_of(const __m512i * pairs) {
    const auto twos = [](__m512i a, __m512i b) {
        return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    };
    const __m512i a     = twos(pairs[0], pairs[1]);
    const __m512i b     = twos(pairs[2], pairs[3]);
    const __m512i fours = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    const __m512i all   = _mm512_add_epi32(fours, _mm512_shuffle_i64x2(fours, fours, 0xB1));
    const __m512i lanes = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(lanes, all));
}
#    endif

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

// The half floats `d` of the same block of eight rows.
template <class Block> inline __m256 scales_of(const Block * const * rows, int64_t block) {
    const auto d = [&](int row) { return (short) rows[row][block].d; };
    return _mm256_cvtph_ps(_mm_setr_epi16(d(0), d(1), d(2), d(3), d(4), d(5), d(6), d(7)));
}

// The largest magnitude of COUNT values.
template <int COUNT> inline float largest_of(const float * values) {
    __m256 largest = _mm256_setzero_ps();
    for (int i = 0; i < COUNT; i += 8) {
        largest = _mm256_max_ps(largest, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_loadu_ps(values + i)));
    }
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
    four        = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

// 32 values times `scale`, rounded.
inline __m256i as_bytes(const float * values, float scale) {
    const auto eight = [&](int first) {
        return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(values + first), _mm256_set1_ps(scale)));
    };
    const __m256i lower = _mm256_packs_epi32(eight(0), eight(8));
    const __m256i bytes = _mm256_packs_epi16(lower, _mm256_packs_epi32(eight(16), eight(24)));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Lane 0 is the sum of the first sixteen signed bytes, lane 1 that of the others.
inline __m128i sums_of_halves(__m256i bytes) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    const __m128i eights = _mm_hadd_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    return _mm_hadd_epi32(eights, eights);
}

// A panel's short rows are more streams than processors foresee. While they are multiplied, or unpacked for few tokens, the next
// ones are prefetched: a share at a time, so that memory and arithmetic do not wait for each other.
template <size_t SIZE> inline void prefetch(const char * share) {
    for (size_t line = 0; line < SIZE; line += 64) {
        _mm_prefetch(share + line, _MM_HINT_T0);
    }
}

}  // namespace jan_serve
#endif
