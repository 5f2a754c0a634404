// Products of quantised weights with activations, on x86 processors with AVX2. patches.cmake puts them into
// ggml-cpu/traits.cpp, and ggml-cpu.c calls them.
#pragma once

// Threads of an operation take the next part of its work by these; in ggml-cpu.c.
extern "C" void jan_serve_begin_chunks(const ggml_compute_params * params, bool waits);
extern "C" int  jan_serve_next_chunk(ggml_threadpool * pool);

#include "block_product.h"
#include "multiplication.h"
#include "superblock_product.h"

#ifdef JAN_SERVE_PRODUCTS
namespace jan_serve {

// Whether the operation's layout is one that `Multiplication` reads and writes.
inline bool has_plain_layout(const ggml_tensor * dst) {
    const ggml_tensor * weights = dst->src[0];
    const ggml_tensor * source  = dst->src[1];
    if (dst->op == GGML_OP_MUL_MAT && weights->ne[2] != 1) {
        return false;
    }
    return weights->ne[3] == 1 && !weights->extra && weights->nb[0] == ggml_type_size(weights->type) &&
           source->type == GGML_TYPE_F32 && source->nb[0] == sizeof(float) && ggml_is_contiguous(dst);
}

// Calls `use` with the multiplication of the operation's type of weights. Whether there is one.
template <class Use> inline bool with_multiplication(const ggml_tensor * dst, const ggml_compute_params * params, Use && use) {
    if (!has_plain_layout(dst) || (params && params->use_ref)) {
        return false;
    }
    switch (dst->src[0]->type) {
        case GGML_TYPE_Q4_0:
            return use(Multiplication<BlockProduct<block_q4_0>>(dst, params)), true;
        case GGML_TYPE_IQ4_NL:
            return use(Multiplication<BlockProduct<block_iq4_nl>>(dst, params)), true;
        case GGML_TYPE_Q5_0:
            return use(Multiplication<BlockProduct<block_q5_0>>(dst, params)), true;
        case GGML_TYPE_Q8_0:
            return use(Multiplication<BlockProduct<block_q8_0>>(dst, params)), true;
        case GGML_TYPE_MXFP4:
            return use(Multiplication<BlockProduct<block_mxfp4>>(dst, params)), true;
#    if !defined(__AVX512F__) || defined(JAN_SERVE_WIDE)  // without VNNI, llama.cpp has products of twice the width
        case GGML_TYPE_Q4_K:
            return use(Multiplication<SuperblockProduct<block_q4_K>>(dst, params)), true;
        case GGML_TYPE_Q5_K:
            return use(Multiplication<SuperblockProduct<block_q5_K>>(dst, params)), true;
        case GGML_TYPE_Q6_K:
            return use(Multiplication<SuperblockProduct<block_q6_K>>(dst, params)), true;
        case GGML_TYPE_Q3_K:
            return use(Multiplication<SuperblockProduct<block_q3_K>>(dst, params)), true;
        case GGML_TYPE_Q2_K:
            return use(Multiplication<SuperblockProduct<block_q2_K>>(dst, params)), true;
        case GGML_TYPE_IQ2_XXS:
            return use(Multiplication<SuperblockProduct<block_iq2_xxs>>(dst, params)), true;
        case GGML_TYPE_IQ2_XS:
            return use(Multiplication<SuperblockProduct<block_iq2_xs>>(dst, params)), true;
        case GGML_TYPE_IQ2_S:
            return use(Multiplication<SuperblockProduct<block_iq2_s>>(dst, params)), true;
        case GGML_TYPE_IQ3_XXS:
            return use(Multiplication<SuperblockProduct<block_iq3_xxs>>(dst, params)), true;
        case GGML_TYPE_IQ3_S:
            return use(Multiplication<SuperblockProduct<block_iq3_s>>(dst, params)), true;
#    endif
#    ifdef JAN_SERVE_WIDE
        case GGML_TYPE_IQ4_XS:
            return use(Multiplication<SuperblockProduct<block_iq4_xs>>(dst, params)), true;
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

// Bytes of the operation's buffer; 0 if it is not computed here.
size_t jan_serve_product_size(const ggml_tensor * dst, int threads) {
    size_t size = 0;
    jan_serve::with_multiplication(dst, nullptr, [&](const auto & product) { size = product.size(threads); });
    return size;
}

// To be called by each thread. Whether the operation was computed here.
bool jan_serve_multiply(const ggml_compute_params * params, ggml_tensor * dst) {
    return jan_serve::with_multiplication(dst, params, [](auto product) { product.run(); });
}
