// Superblocks: types of weights that hold 256 values, in groups of 16 or 32 with scales of their own.
#pragma once

#include "vectors.h"

#ifdef JAN_SERVE_PRODUCTS
#    define GGML_COMMON_DECL_CPP
#    include "ggml-common.h"

namespace jan_serve {

constexpr int BLOCKS = QK_K / 32;  // of a superblock: a vector of bytes each

// A superblock as it is read: a value is its byte times its group's scale times `d`, less its group's minimum times `least`.
// Groups hold 16 values, and numbers of groups 16 bits; the even groups are in the lower half, the odd ones in the upper.
struct Superblock {
    alignas(64) __m256i bytes[BLOCKS];
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

// Values of two bits, of a block in each pair of a byte's bits. Scales and minima are halves of bytes.
inline Superblock read(const block_q2_K & block) {
    Superblock out;
    for (int i = 0; i < BLOCKS; i++) {
        const __m256i packed = _mm256_loadu_si256((const __m256i *) block.qs + i / 4);
        out.bytes[i]         = _mm256_and_si256(_mm256_srli_epi16(packed, 2 * (i % 4)), _mm256_set1_epi8(3));
    }
    const __m128i both  = _mm_loadu_si128((const __m128i *) block.scales);
    const __m128i lower = _mm_set1_epi8(15);
    out.scales          = of_bytes(_mm_and_si128(both, lower));
    out.minima          = of_bytes(_mm_and_si128(_mm_srli_epi16(both, 4), lower));
    out.d               = _cvtsh_ss(block.data.data.d);
    out.least           = _cvtsh_ss(block.data.data.dmin);
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
    const __m128i end    = _mm_loadu_si128((const __m128i *) (&block + 1) - 1);  // two bytes of values, the scales, and `d`
    const __m128i words  = _mm_bsrli_si128(end, 2);
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

// Each lane gets four bits.
inline __m256i fours_of(int32_t word) {
    const __m256i places = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    return _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(word), places), _mm256_set1_epi32(15));
}

// Each lane gets a block's scale: four bits, two more in `scales_h`, less 32.
inline __m256i scales_of(const block_iq4_xs & block) {
    int32_t lower;
    memcpy(&lower, block.scales_l, sizeof(lower));
    const __m256i places = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const __m256i four   = fours_of(lower);
    const __m256i twice  = _mm256_srlv_epi32(_mm256_set1_epi32(block.scales_h), places);
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

// VALUES: with the same scale. VECTORS: their products of pairs fit into 16 bits together; 0: only products of 32 bits hold those of
// its bytes. HAS_ONE_SUM: minima are negative and multiplied by `d` too, so that a superblock is one sum of integers.
template <int VALUES, int VECTORS, bool HAS_ONE_SUM = false> struct Groups {
    static constexpr int  GROUP      = VALUES;
    static constexpr int  SHORTS     = VECTORS;
    static constexpr bool IS_WIDE    = VECTORS == 0;
    static constexpr bool IS_ONE_SUM = HAS_ONE_SUM;
};

template <class Block> struct Layout;

template <> struct Layout<block_q2_K> : Groups<16, 4> {};
template <> struct Layout<block_q3_K> : Groups<16, 4> {};
template <> struct Layout<block_q4_K> : Groups<32, 8> {};
template <> struct Layout<block_q5_K> : Groups<32, 4> {};
template <> struct Layout<block_q6_K> : Groups<16, 2> {};
template <> struct Layout<block_iq4_xs> : Groups<32, 0> {};

}  // namespace jan_serve
#endif
