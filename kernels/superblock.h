// Superblocks: types of weights that hold 256 values, in groups of 16 or 32 with scales of their own.
#pragma once

#include "vectors.h"

#ifdef JAN_SERVE_PRODUCTS
#    define GGML_COMMON_DECL_CPP
#    include "ggml-common.h"

namespace jan_serve {

constexpr int BLOCKS  = QK_K / 32;            // of a superblock
constexpr int GROUPS  = QK_K / 16;            // of 16 values
constexpr int VECTORS = QK_K / sizeof(Ints);  // of bytes
constexpr int PIECES  = 64 / sizeof(Ints);    // vectors of 64 bytes

// A superblock as it is read: a value is its byte times its group's scale times `d`, less its group's minimum times `least`, or less
// the minimum times `d` (Groups::IS_ONE_SUM). Bytes are in the order of Layout::place. Scales and minima are numbers of 16 bits for
// groups of 16 values: those of even groups in the lower half, those of odd ones in the upper. All lanes of `d` and `least` are the same.
struct Superblock {
    Ints    bytes[VECTORS];
    __m256i scales;
    __m256i minima;
    __m128  d;
    __m128  least;
};

// A half float in all lanes: as a scalar, Clang reads it into a register that it must wait for.
inline __m128 of_half(ggml_half half) {
    return _mm_cvtph_ps(_mm_set1_epi16((short) half));
}

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

inline Ints each_byte(int8_t byte) {
    return JAN_SERVE_OP(set1_epi8)(byte);
}

// `bits` with those of `others` that `mask` has.
inline Ints with_bits(Ints bits, Ints others, int8_t mask) {
    return JAN_SERVE_BITS(or)(bits, JAN_SERVE_BITS(and)(others, each_byte(mask)));
}

inline Ints lower_half(Ints bytes) {
    return JAN_SERVE_BITS(and)(bytes, each_byte(15));
}

inline Ints upper_half(Ints bytes) {
    return lower_half(JAN_SERVE_OP(srli_epi16)(bytes, 4));
}

// Bits of a byte move up by COUNT, or down by -COUNT; others come in.
template <int COUNT> inline Ints moved(Ints bytes) {
    return COUNT < 0 ? JAN_SERVE_OP(srli_epi16)(bytes, COUNT < 0 ? -COUNT : 0) : JAN_SERVE_OP(slli_epi16)(bytes, COUNT < 0 ? 0 : COUNT);
}

// For piece number `piece` of 64 bytes: 32 bytes, of which the second half of the 64 gets the bits from UPPER on.
template <int UPPER> inline Ints for_piece(__m256i bytes, int piece) {
#    ifdef JAN_SERVE_WIDE
    const __m512i moves = _mm512_mask_set1_epi16(_mm512_setzero_si512(), 0xFFFF0000, UPPER);
    return _mm512_srlv_epi16(_mm512_broadcast_i64x4(bytes), moves);
#    else
    return piece == 0 ? bytes : _mm256_srli_epi16(bytes, UPPER);
#    endif
}

// Piece number `piece` of 64 bytes.
inline Ints piece_of(const uint8_t * bytes, int piece) {
    return load<Ints>(bytes + piece * sizeof(Ints));
}

inline Superblock read(const block_q4_K & block) {
    Superblock out;
    read_scales(block.scales, out);
    for (int i = 0; i < VECTORS; i += 2) {
        const Ints packed = piece_of(block.qs, i / 2);
        out.bytes[i]      = lower_half(packed);
        out.bytes[i + 1]  = upper_half(packed);
    }
    out.d     = of_half(block.data.data.d);
    out.least = of_half(block.data.data.dmin);
    return out;
}

inline Superblock read(const block_q5_K & block) {
    Superblock out;
    read_scales(block.scales, out);
    const __m256i fifths = load<__m256i>(block.qh);  // bit i of each byte: of block i
    for (int piece = 0; piece < PIECES; piece++) {
        const Ints high   = for_piece<2>(fifths, piece);
        const Ints first  = piece_of(block.qs, piece);
        const Ints second = piece_of(block.qs + 64, piece);
        Ints *     bytes  = out.bytes + 2 * piece;
        bytes[0]          = with_bits(lower_half(first), moved<4>(high), 16);
        bytes[1]          = with_bits(upper_half(first), moved<3>(high), 16);
        bytes += VECTORS / 2;
        bytes[0] = with_bits(lower_half(second), high, 16);
        bytes[1] = with_bits(upper_half(second), moved<-1>(high), 16);
    }
    out.d     = of_half(block.data.data.d);
    out.least = of_half(block.data.data.dmin);
    return out;
}

// Signed bytes, one of each group in their order, as numbers of 16 bits: those of even groups first.
inline __m256i of_bytes(__m128i scales) {
    return _mm256_set_m128i(_mm_srai_epi16(scales, 8), _mm_srai_epi16(_mm_slli_epi16(scales, 8), 8));
}

// Values have an offset of 32, which is a minimum: the scale, times 32.
inline Superblock read(const block_q6_K & block) {
    Superblock out;
    for (int half = 0; half < 2; half++) {
        const __m256i high = load<__m256i>(block.qh + 32 * half);
        for (int piece = 0; piece < PIECES; piece++) {
            const Ints packed = piece_of(block.ql + 64 * half, piece);
            Ints *     bytes  = out.bytes + half * VECTORS / 2 + piece;
            bytes[0]          = with_bits(lower_half(packed), for_piece<2>(_mm256_slli_epi16(high, 4), piece), 0x30);
            bytes[PIECES]     = with_bits(upper_half(packed), for_piece<2>(high, piece), 0x30);
        }
    }
    out.scales = of_bytes(_mm_loadu_si128((const __m128i *) block.scales));
    out.minima = _mm256_slli_epi16(out.scales, 5);
    out.d      = of_half(block.d);
    return out;
}

// Values of two bits, of a block in each pair of a byte's bits. Scales and minima are halves of bytes.
inline Superblock read(const block_q2_K & block) {
    Superblock out;
    for (int piece = 0; piece < PIECES; piece++) {
        const Ints packed = piece_of(block.qs, piece);
        for (int i = 0; i < 4; i++) {
            out.bytes[4 * piece + i] = JAN_SERVE_BITS(and)(JAN_SERVE_OP(srli_epi16)(packed, 2 * i), each_byte(3));
        }
    }
    const __m128i both  = _mm_loadu_si128((const __m128i *) block.scales);
    const __m128i lower = _mm_set1_epi8(15);
    out.scales          = of_bytes(_mm_and_si128(both, lower));
    out.minima          = of_bytes(_mm_and_si128(_mm_srli_epi16(both, 4), lower));
    out.d               = of_half(block.data.data.d);
    out.least           = of_half(block.data.data.dmin);
    return out;
}

// Scales of six bits with an offset of 32, twelve bytes: the lower four bits of eight of them in a byte's halves, then the upper
// two of sixteen, each four bytes apart. Values have an offset of 4.
inline Superblock read(const block_q3_K & block) {
    Superblock    out;
    const __m256i thirds = load<__m256i>(block.hmask);  // bit i of each byte: of block i
    for (int piece = 0; piece < PIECES; piece++) {
        const Ints packed = piece_of(block.qs, piece);
        const Ints high   = for_piece<4>(thirds, piece);
        const auto lower  = [&](int i) { return JAN_SERVE_BITS(and)(JAN_SERVE_OP(srli_epi16)(packed, 2 * i), each_byte(3)); };
        Ints *     bytes  = out.bytes + 4 * piece;
        bytes[0]          = with_bits(lower(0), moved<2>(high), 4);
        bytes[1]          = with_bits(lower(1), moved<1>(high), 4);
        bytes[2]          = with_bits(lower(2), high, 4);
        bytes[3]          = with_bits(lower(3), moved<-1>(high), 4);
    }
    const __m128i end    = _mm_loadu_si128((const __m128i *) (&block + 1) - 1);  // two bytes of values, the scales, and `d`
    const __m128i words  = _mm_bsrli_si128(end, 2);
    const __m128i halves = _mm_srlv_epi32(_mm_shuffle_epi32(words, 0x44), _mm_setr_epi32(0, 0, 4, 4));
    const __m128i pairs  = _mm_srlv_epi32(_mm_shuffle_epi32(words, 0xAA), _mm_setr_epi32(0, 2, 4, 6));
    const __m128i upper  = _mm_slli_epi16(_mm_and_si128(pairs, _mm_set1_epi8(3)), 4);
    const __m128i six    = _mm_or_si128(_mm_and_si128(halves, _mm_set1_epi8(15)), upper);
    out.scales           = of_bytes(_mm_sub_epi8(six, _mm_set1_epi8(32)));
    out.minima           = _mm256_slli_epi16(out.scales, 2);
    out.d                = of_half(block.d);
    return out;
}

// Each lane gets four bits.
inline __m256i fours_of(int32_t word) {
    const __m256i places = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    return _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(word), places), _mm256_set1_epi32(15));
}

// Eight numbers as numbers of 16 bits, twice. All that is packed is used: in place of an operand that is not, Clang takes any
// register, and the product waits for it.
inline __m256i in_both_halves(__m256i numbers) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(numbers, numbers), 0xD8);
}

#    ifdef JAN_SERVE_WIDE
// Values of a table, which have an offset of 128. A block's scale: four bits, two more in `scales_h`, less 32.
inline Superblock read(const block_iq4_xs & block) {
    Superblock    out;
    const __m512i table = _mm512_xor_si512(_mm512_broadcast_i32x4(nonlinear_values()), each_byte(-128));
    for (int i = 0; i < VECTORS; i += 2) {
        const __m512i packed = piece_of(block.qs, i / 2);
        out.bytes[i]         = _mm512_shuffle_epi8(table, lower_half(packed));
        out.bytes[i + 1]     = _mm512_shuffle_epi8(table, upper_half(packed));
    }
    int32_t lower;
    memcpy(&lower, block.scales_l, sizeof(lower));
    const __m256i places = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const __m256i twos   = _mm256_srlv_epi32(_mm256_set1_epi32(block.scales_h), places);
    const __m256i upper  = _mm256_slli_epi32(_mm256_and_si256(twos, _mm256_set1_epi32(3)), 4);
    const __m256i six    = _mm256_or_si256(fours_of(lower), upper);
    out.scales           = in_both_halves(_mm256_sub_epi32(six, _mm256_set1_epi32(32)));
    out.minima           = _mm256_slli_epi16(out.scales, 7);
    out.d                = of_half(block.d);
    return out;
}
#    endif

// The order of bytes, with vectors of 512 bits. HALVES: of 64 bytes, the lower halves, then the upper ones. QUARTERS: pairs of bits in
// turn. SHORT_HALVES: as HALVES, of which each holds 16 values of a block.
enum class Order { OF_VALUES, HALVES, QUARTERS, SHORT_HALVES };

// COUNT: values with the same scale. SHORTS: vectors whose products of pairs fit into 16 bits together; 0: only products of 32 bits hold
// those of its bytes. HAS_ONE_SUM: minima are multiplied by `d` too, so that a superblock is one sum of integers.
template <int COUNT, int NUMBER, bool HAS_ONE_SUM = false, Order ORDER = Order::OF_VALUES> struct Groups {
    static constexpr int  GROUP      = COUNT;
    static constexpr int  SHORTS     = NUMBER;
    static constexpr bool IS_ONE_SUM = HAS_ONE_SUM;
    static constexpr bool IS_GRID    = false;

    // Where a group of 16 values lies, in groups.
    static constexpr int place(int group) {
        const int block = group / 2;
        const int odd   = group % 2;
        if (PIECES == 2) {
            return group;
        }
        switch (ORDER) {
            case Order::HALVES:
                return block / 4 * 8 + block % 2 * 4 + block % 4 / 2 * 2 + odd;
            case Order::QUARTERS:
                return block % 4 * 4 + block / 4 * 2 + odd;
            case Order::SHORT_HALVES:
                return block / 4 * 8 + odd * 4 + block % 4;
            default:
                return group;
        }
    }
};

template <class Block> struct Layout;

template <> struct Layout<block_q2_K> : Groups<16, 4, false, Order::QUARTERS> {};
template <> struct Layout<block_q3_K> : Groups<16, 4, true, Order::QUARTERS> {};
template <> struct Layout<block_q4_K> : Groups<32, 8, false, Order::HALVES> {};
template <> struct Layout<block_q5_K> : Groups<32, 4, false, Order::HALVES> {};
template <> struct Layout<block_q6_K> : Groups<16, 2, true> {};
template <> struct Layout<block_iq4_xs> : Groups<32, 0, true, Order::SHORT_HALVES> {};

}  // namespace jan_serve
#endif
