// Vectors of the products on x86 processors with AVX2.
#pragma once

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    define JAN_SERVE_PRODUCTS 1
#    if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
#        define JAN_SERVE_VNNI 1
#    endif
#endif

#ifdef JAN_SERVE_PRODUCTS
#    include <cstddef>
#    include <cstdint>
#    include <cstring>

#    include <immintrin.h>

namespace jan_serve {

constexpr int64_t PANEL_ROWS = 8;

// Each of eight lanes gets the products of its four unsigned and its four signed bytes.
inline __m256i add_products(__m256i sums, __m256i u8, __m256i s8) {
#    if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return _mm256_dpbusd_epi32(sums, u8, s8);
#    elif defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sums, u8, s8);
#    else
    return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(u8, s8), _mm256_set1_epi16(1)));
#    endif
}

// The same four bytes in each lane.
inline __m256i four_bytes(const int8_t * bytes) {
    int32_t four;
    memcpy(&four, bytes, sizeof(four));
    return _mm256_set1_epi32(four);
}

// Sums of the products of pairs of neighbouring bytes. Each of COUNT vectors holds four bytes of each of eight rows of weights;
// they are multiplied by the same four bytes of each of N rows of activations.
template <int N, int COUNT> inline void sum_pairs(const __m256i * weights, const int8_t * const * activations, __m256i * sums) {
    for (int i = 0; i < COUNT; i++) {
        const __m256i four = _mm256_loadu_si256(weights + i);
        for (int j = 0; j < N; j++) {
            const __m256i pairs = _mm256_maddubs_epi16(four, four_bytes(activations[j] + 4 * i));
            sums[j]             = i ? _mm256_add_epi16(sums[j], pairs) : pairs;
#    ifdef __clang__  // it would compute the products of many fours before it adds them, and spill them
            asm volatile("" : "+x"(sums[j]));
#    endif
        }
    }
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

// The half floats `d` of the same block of eight rows.
template <class Block> inline __m256 scales_of(const Block * const * rows, int64_t block) {
    const auto d = [&](int row) { return (short) rows[row][block].d; };
    return _mm256_cvtph_ps(_mm_setr_epi16(d(0), d(1), d(2), d(3), d(4), d(5), d(6), d(7)));
}

// Eight short rows are more streams than processors foresee. While they are multiplied, the next eight are prefetched: a share
// with each block, so that memory and arithmetic do not wait for each other.
template <size_t SIZE> inline void prefetch(const char * share) {
    for (size_t line = 0; line < SIZE; line += 64) {
        _mm_prefetch(share + line, _MM_HINT_T0);
    }
}

}  // namespace jan_serve
#endif
