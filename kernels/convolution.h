// The convolution over the last tokens of each channel (SSM_CONV), and the CONCAT that makes its input: rows of channels, to
// which new tokens come as rows of tokens. llama.cpp moves either value by value. Here, eight rows are transposed at a time.
// patches.cmake puts both into ggml-cpu/ops.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "attention.h"
#include "delta_net.h"

#ifdef JAN_SERVE_DELTA_NET
namespace jan_serve {

class Convolution {
  public:
    Convolution(const ggml_compute_params * params, ggml_tensor * dst) :
        params(params), dst(dst), kernel(dst->src[1]->ne[0]), channels(dst->src[1]->ne[1]) {}

    bool is_possible() const { return !params->use_ref && kernel <= KERNEL && channels % COLUMNS == 0; }

    // To be called by each thread.
    void run() const {
        const ThreadUnits units(channels / COLUMNS, params);
        for (int64_t sequence = 0; sequence < dst->ne[2]; sequence++) {
            for (int64_t token = 0; token < dst->ne[1]; token += TOKENS) {
                for (int64_t unit = units.begin; unit < units.end; unit++) {
                    compute(sequence, token, unit * COLUMNS);
                }
            }
        }
    }

  private:
    static constexpr int64_t KERNEL = 8;   // tokens that one value depends on, at most
    static constexpr int64_t TOKENS = 64;  // that are transposed together

    const ggml_compute_params * params;
    ggml_tensor *               dst;
    int64_t                     kernel, channels;

    void compute(int64_t sequence, int64_t first, int64_t channel) const {
        const ggml_tensor * source = dst->src[0];
        const int64_t       stride = source->ne[0];
        const int64_t       tokens = std::min(TOKENS, dst->ne[1] - first);
        const float *       inputs =
            (const float *) ((const char *) source->data + sequence * source->nb[2]) + channel * stride + first;
        const float * weights = (const float *) dst->src[1]->data + channel * kernel;
        float         input_columns[(TOKENS + KERNEL) * COLUMNS];
        float         weight_columns[KERNEL * COLUMNS];
        for (int64_t i = 0; i < COLUMNS; i += EIGHT) {
            as_eight_columns(input_columns + i, COLUMNS, inputs + i * stride, stride, tokens + kernel - 1);
            as_eight_columns(weight_columns + i, COLUMNS, weights + i * kernel, kernel, kernel);
        }
        float * to = (float *) ((char *) dst->data + sequence * dst->nb[2] + first * dst->nb[1]) + channel;
        for (int64_t token = 0; token < tokens; token++) {
            for (int64_t lane = 0; lane < COLUMNS; lane += LANES) {
                GGML_F32_VEC sum = GGML_F32_VEC_ZERO;
                for (int64_t i = 0; i < kernel; i++) {
                    sum = GGML_F32_VEC_FMA(sum, GGML_F32_VEC_LOAD(input_columns + (token + i) * COLUMNS + lane),
                                           GGML_F32_VEC_LOAD(weight_columns + i * COLUMNS + lane));
                }
                GGML_F32_VEC_STORE(to + token * channels + lane, sum);
            }
        }
    }
};

// Rows of channels, each followed by further values that lie in rows of tokens (a transposed view).
class TokensAppended {
  public:
    TokensAppended(const ggml_compute_params * params, ggml_tensor * dst) : params(params), dst(dst) {}

    bool is_possible() const {
        const ggml_tensor * rows   = dst->src[0];
        const ggml_tensor * tokens = dst->src[1];
        return ggml_get_op_params_i32(dst, 0) == 0 && rows->type == GGML_TYPE_F32 && rows->nb[0] == sizeof(float) &&
               tokens->nb[1] == sizeof(float) && ggml_is_contiguous(dst);
    }

    // To be called by each thread.
    void run() const {
        const int64_t     parts = (dst->ne[1] + ROWS - 1) / ROWS;
        const ThreadUnits units(parts * dst->ne[2] * dst->ne[3], params);
        for (int64_t unit = units.begin; unit < units.end; unit++) {
            append(unit % parts * ROWS, unit / parts % dst->ne[2], unit / parts / dst->ne[2]);
        }
    }

  private:
    static constexpr int64_t ROWS = 64;

    const ggml_compute_params * params;
    ggml_tensor *               dst;

    static char * place(const ggml_tensor * tensor, int64_t i1, int64_t i2, int64_t i3) {
        return (char *) tensor->data + i1 * tensor->nb[1] + i2 * tensor->nb[2] + i3 * tensor->nb[3];
    }

    void append(int64_t first, int64_t i2, int64_t i3) const {
        const int64_t rows  = std::min(ROWS, dst->ne[1] - first);
        const int64_t old   = dst->src[0]->ne[0];
        const int64_t width = dst->ne[0];
        float *       to    = (float *) place(dst, first, i2, i3);
        for (int64_t row = 0; row < rows; row++) {
            memcpy(to + row * width, place(dst->src[0], first + row, i2, i3), old * sizeof(float));
        }
        const float * from   = (const float *) place(dst->src[1], first, i2, i3);
        const int64_t stride = dst->src[1]->nb[0] / sizeof(float);
        const int64_t tokens = dst->src[1]->ne[0];
        int64_t       token  = 0;
        for (; token + EIGHT <= tokens; token += EIGHT) {
            as_eight_columns(to + old + token, width, from + token * stride, stride, rows);
        }
        for (; token < tokens; token++) {
            for (int64_t row = 0; row < rows; row++) {
                to[row * width + old + token] = from[token * stride + row];
            }
        }
    }
};

}  // namespace jan_serve
#endif
