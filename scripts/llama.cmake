# Read by CMake after project() of llama-cpp-python (CMAKE_PROJECT_llama_cpp_INCLUDE): what is built, and what is installed.

# llama.cpp's command-line library and its HTTP client: nothing in the package uses them. A normal variable, which the
# cache entry of llama-cpp-python does not override (CMP0126).
set(LLAMA_BUILD_COMMON OFF)

# libmtmd's video reader starts ffmpeg on what it cannot decode. Images reach it decoded, so nothing needs its readers.
set(MTMD_VIDEO OFF CACHE BOOL "" FORCE)

# Each library once, under the name that the loader asks for: no libllama.so.0 and libllama.so.0.5.0 beside libllama.so.
set(CMAKE_PLATFORM_NO_VERSIONED_SONAME ON)

# llama.cpp's own install rules write where llama-cpp-python's do, not to a second folder of site-packages. Backends that
# are loaded at run time are installed by the former only.
foreach(folder IN ITEMS LIB BIN)
    set(CMAKE_INSTALL_${folder}DIR llama_cpp/lib)
endforeach()
set(CMAKE_INSTALL_INCLUDEDIR llama_cpp/include)

# Notices of what is compiled into the libraries. JAN_SERVE_ZIG: Zig's folder, if its C++ library is linked into them.
function(jan_serve_licences)
    set(llama ${CMAKE_SOURCE_DIR}/vendor/llama.cpp)
    set(notices llama.cpp=${llama}/LICENSE xxhash=${llama}/vendor/hash/xxhash/LICENSE)
    if(JAN_SERVE_ZIG)
        list(APPEND notices libc++=${JAN_SERVE_ZIG}/lib/libcxx/LICENSE.TXT zig=${JAN_SERVE_ZIG}/LICENSE)
    endif()
    foreach(notice IN LISTS notices)
        string(REGEX MATCH "^([^=]+)=(.+)$" _ "${notice}")
        install(FILES "${CMAKE_MATCH_2}" DESTINATION llama_cpp/licences RENAME ${CMAKE_MATCH_1}.txt)
    endforeach()
    # The notice at the head of the matrix multiplication that came from llamafile.
    file(STRINGS ${llama}/ggml/src/ggml-cpu/llamafile/sgemm.cpp lines LIMIT_COUNT 40 REGEX "^//( [A-Z\"(a-z]|$)")
    list(JOIN lines "\n" text)
    string(REGEX REPLACE "(SOFTWARE\\.).*$" "\\1\n" text "${text}")
    file(WRITE ${CMAKE_BINARY_DIR}/llamafile.txt "${text}")
    install(FILES ${CMAKE_BINARY_DIR}/llamafile.txt DESTINATION llama_cpp/licences)
endfunction()
jan_serve_licences()

# Many sources in one compilation share the reading of headers, which is most of the work. The kernels stay apart, with
# their own flags. Left out are a file whose names clash with others', and tables.
function(jan_serve_join_sources)
    set(llama ${CMAKE_SOURCE_DIR}/vendor/llama.cpp)
    file(GLOB core ${llama}/src/*.cpp)
    list(FILTER core EXCLUDE REGEX "/(llama-kv-cache-dsv4|unicode-data)\\.cpp$")
    set_source_files_properties(${core} TARGET_DIRECTORY llama PROPERTIES SKIP_UNITY_BUILD_INCLUSION OFF)
    if(TARGET mtmd)
        file(GLOB apart ${llama}/tools/mtmd/*.cpp)
        set_source_files_properties(${apart} TARGET_DIRECTORY mtmd PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
        set_target_properties(mtmd PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 64)
    endif()
endfunction()
cmake_language(DEFER CALL jan_serve_join_sources)

# Kernels of our own for CPUs: the headers in kernels/ say why. Each change is a piece of ggml-cpu's source and what takes its
# place.
set(jan_serve_kernels ${CMAKE_SOURCE_DIR}/vendor/llama.cpp/ggml/src/ggml-cpu)
file(GLOB jan_serve_headers ${CMAKE_CURRENT_LIST_DIR}/kernels/*.h)
file(COPY ${jan_serve_headers} DESTINATION ${jan_serve_kernels})

function(jan_serve_change file)
    set(path ${jan_serve_kernels}/${file})
    file(READ ${path} text)
    while(ARGN)
        list(POP_FRONT ARGN before after)
        string(FIND "${text}" "${${after}}" done)
        if(done EQUAL -1)  # else an earlier run of CMake on this source changed it
            string(FIND "${text}" "${${before}}" found)
            if(found EQUAL -1)
                message(FATAL_ERROR "scripts/llama.cmake: ${path} has no longer:\n${${before}}")
            endif()
            string(REPLACE "${${before}}" "${${after}}" text "${text}")
        endif()
    endwhile()
    file(WRITE ${path} "${text}")
endfunction()

function(jan_serve_attention)
    set(include [=[
#include "vec.h"
]=])
    set(include_ours [=[
#include "vec.h"
#include "attention.h"
]=])
    # A row at a time, in which cells of other sequences are passed by in blocks.
    set(cell [=[
            const float mv = mp ? slope*GGML_CPU_FP16_TO_FP32(mp[ic]) : 0.0f;
            if (mv == -INFINITY) {
]=])
    set(cell_ours [=[
            if (mp && ic % 64 == 0 && ic + 64 <= ic_end && jan_serve::all_hidden((const uint16_t *) mp + ic, 64)) {
                ic += 63;
                continue;
            }
            const float mv = mp ? slope*GGML_CPU_FP16_TO_FP32(mp[ic]) : 0.0f;
            if (mv == -INFINITY) {
]=])
    # Tiles: only rows that see one of its cells are computed, and only a mask that says something is converted.
    set(arguments [=[
static void ggml_compute_forward_flash_attn_ext_tiled(
        const ggml_compute_params * params,
]=])
    set(arguments_ours [=[
static void ggml_compute_forward_flash_attn_ext_tiled(
        jan_serve::MaskTiles & mask_tiles,
        const ggml_compute_params * params,
]=])
    set(mask [=[
            if (mask) {
                bool can_skip = true;
                for (int tq = 0; tq < tile_rows; tq++) {
]=])
    set(mask_ours [=[
            const jan_serve::Tile tile = mask_tiles.at(iq1, tile_rows, ic, iq2, iq3);
            if (tile.seen == jan_serve::Seen::NONE) {
                continue;
            }
            float *       tile_Q    = (float *) Q_q + tile.first * DK;
            float *       tile_KQ   = KQ + tile.first * KV_TILE_SZ;
            const int64_t tile_size = tile.count * KV_TILE_SZ;
            if (tile.seen == jan_serve::Seen::SOME) {
                bool can_skip = true;
                for (int tq = tile.first; tq < tile.last; tq++) {
]=])
    set(same_types [=[
    GGML_ASSERT(k->type == v->type);
    const ggml_type kv_type = k->type;
]=])
    set(same_types_ours [=[
    // Keys and values of any types that can be read.
]=])
    set(keys [=[
            for (int tk = 0; tk < kv_tile; tk++) {
                const char * k_data = (const char *)k->data + (ic + tk)*nbk1 + ik2*nbk2 + ik3*nbk3;
                if (kv_type == GGML_TYPE_F16) {
                    const ggml_fp16_t * k_f16 = (const ggml_fp16_t *)k_data;
                    for (int64_t dk = 0; dk < DK; dk++) {
                        K_f32[dk * KV_TILE_SZ + tk] = GGML_CPU_FP16_TO_FP32(k_f16[dk]);
                    }
                } else {
                    const float * k_f32_src = (const float *)k_data;
                    for (int64_t dk = 0; dk < DK; dk++) {
                        K_f32[dk * KV_TILE_SZ + tk] = k_f32_src[dk];
                    }
                }
            }
]=])
    set(keys_ours [=[
            jan_serve::as_columns(K_f32, KV_TILE_SZ, k->type, (const char *) k->data + ic*nbk1 + ik2*nbk2 + ik3*nbk3, nbk1,
                                  kv_tile, DK, V32);
]=])
    set(value [=[
                if (kv_type == GGML_TYPE_F16) {
                    ggml_cpu_fp16_to_fp32((const ggml_fp16_t *)v_data, V32 + tk * DV, DV);
                } else {
                    memcpy(V32 + tk * DV, v_data, DV * sizeof(float));
                }
]=])
    set(value_ours [=[
                jan_serve::read_row(v->type, v_data, V32 + tk * DV, DV);
]=])
    set(scores [=[
            memset(KQ, 0, Q_TILE_SZ * KV_TILE_SZ * sizeof(float));
            simd_gemm(KQ, (const float *)Q_q, K_f32, Q_TILE_SZ, DK, KV_TILE_SZ);
            ggml_vec_scale_f32(Q_TILE_SZ * KV_TILE_SZ, KQ, scale);

            if (logit_softcap != 0.0f) {
                ggml_vec_tanh_f32(Q_TILE_SZ * KV_TILE_SZ, KQ, KQ);
                ggml_vec_scale_f32(Q_TILE_SZ * KV_TILE_SZ, KQ, logit_softcap);
]=])
    set(scores_ours [=[
            memset(tile_KQ, 0, tile_size * sizeof(float));
            simd_gemm(tile_KQ, tile_Q, K_f32, tile.count, DK, KV_TILE_SZ);
            ggml_vec_scale_f32(tile_size, tile_KQ, scale);

            if (logit_softcap != 0.0f) {
                ggml_vec_tanh_f32(tile_size, tile_KQ, tile_KQ);
                ggml_vec_scale_f32(tile_size, tile_KQ, logit_softcap);
]=])
    set(add_mask [=[
            if (mask) {
                ggml_vec_add_f32(tile_rows * KV_TILE_SZ, KQ, KQ, mask32);
]=])
    set(add_mask_ours [=[
            if (tile.seen == jan_serve::Seen::SOME) {
                ggml_vec_add_f32(tile_size, tile_KQ, tile_KQ, mask32 + tile.first * KV_TILE_SZ);
]=])
    set(softmax [=[
            bool skip[Q_TILE_SZ] = {};

            for (int tq = 0; tq < Q_TILE_SZ; tq++) {
]=])
    set(softmax_ours [=[
            bool skip[Q_TILE_SZ] = {};

            for (int tq = tile.first; tq < tile.last; tq++) {
]=])
    set(values "simd_gemm(VKQ32, KQ, V32, Q_TILE_SZ, KV_TILE_SZ, DV);")
    set(values_ours "simd_gemm(VKQ32 + tile.first * DV, tile_KQ, V32, tile.count, KV_TILE_SZ, DV);")
    # Which way: tiles, groups of heads, or row by row as before. A few rows are never tiled: drafts are checked in the
    # arithmetic of single tokens.
    set(readable [=[
    const bool kv_is_f32_or_f16 = (k->type == GGML_TYPE_F32 || k->type == GGML_TYPE_F16);
    const bool use_split_kv_path = !use_ref && (neq1 == 1 && neq3 == 1) && kv_is_f32_or_f16 && (k->type == v->type) && q->type == GGML_TYPE_F32 && nek1 >= 512;
]=])
    set(readable_ours [=[
    const bool kv_is_f32_or_f16 = (k->type == GGML_TYPE_F32 || k->type == GGML_TYPE_F16) && k->type == v->type;
    const bool kv_is_readable = kv_is_f32_or_f16 || (jan_serve::HAS_PRODUCTS && jan_serve::is_readable(k->type) && jan_serve::is_readable(v->type));
    jan_serve::GroupedAttention groups(dst);
    const bool use_split_kv_path = !use_ref && (neq1 == 1 && neq3 == 1) && (kv_is_f32_or_f16 || groups.is_possible()) && q->type == GGML_TYPE_F32 && nek1 >= 512;
]=])
    set(part [=[
        if (ic_start < nek1) {
            for (int64_t q_head]=])
    set(part_ours [=[
        if (groups.is_possible()) {
            groups.compute_part(ith, nth, chunk_partials, partial_stride);
        } else if (ic_start < nek1) {
            for (int64_t q_head]=])
    set(reduce "ggml_flash_attn_ext_reduce_partials(params, dst, nth, chunk_size);")
    set(reduce_ours "ggml_flash_attn_ext_reduce_partials(params, dst, nth, groups.is_possible() ? 0 : chunk_size);")
    set(rows [=[
        // total rows in q
        const int64_t nr = neq1*neq2*neq3;
]=])
    set(rows_ours [=[
        static constexpr int64_t FEW_ROWS = 24;
        jan_serve::MaskTiles mask_tiles(neq1 >= FEW_ROWS ? dst->src[3] : nullptr, ggml_fa_tile_config::Q, ggml_fa_tile_config::KV);
        const bool tiles_pay = neq1 >= (int64_t) ggml_fa_tile_config::Q ||
                               (jan_serve::HAS_PRODUCTS && neq1 >= FEW_ROWS && mask_tiles.pay(groups.time()));
        const bool use_groups = !use_ref && !tiles_pay && groups.is_possible();
        const int64_t nr = use_groups ? groups.units() : neq1*neq2*neq3;
]=])
    set(threshold [=[
        static constexpr int64_t Q_TILE_SZ  = ggml_fa_tile_config::Q;
        bool use_tiled = !use_ref &&
                               (q->type == GGML_TYPE_F32 &&
                                kv_is_f32_or_f16 &&
                                k->type == v->type &&
                                neq1 >= Q_TILE_SZ);
]=])
    set(threshold_ours [=[
        bool use_tiled = !use_ref &&
                               (q->type == GGML_TYPE_F32 &&
                                kv_is_readable &&
                                tiles_pay);
]=])
    set(call [=[
            if (use_tiled) {
                ggml_compute_forward_flash_attn_ext_tiled(params, dst, ir0, ir1);
]=])
    set(call_ours [=[
            if (use_groups) {
                groups.compute(ir0, ir1);
            } else if (use_tiled) {
                ggml_compute_forward_flash_attn_ext_tiled(mask_tiles, params, dst, ir0, ir1);
]=])
    set(names include cell arguments same_types mask keys scores add_mask softmax value values readable part reduce rows threshold call)
    set(pairs)
    foreach(name IN LISTS names)
        list(APPEND pairs ${name} ${name}_ours)
    endforeach()
    jan_serve_change(ops.cpp ${pairs})

    # Products of six rows leave four of a tile's 64.
    set(tail [=[
    // Tail rows: one at a time
]=])
    set(tail_ours [=[
    for (; GEMM_RM > 4 && ii + 4 <= M && N % (GEMM_RN * KN) == 0; ii += 4) {
        for (int64_t jj = 0; jj < N; jj += GEMM_RN * KN) {
            simd_gemm_ukernel<4, GEMM_RN>(C + jj, A, B + jj, K, N);
        }
        A += 4 * K;
        C += 4 * N;
    }

    // Tail rows: one at a time
]=])
    jan_serve_change(simd-gemm.h tail tail_ours)
endfunction()
jan_serve_attention()

function(jan_serve_products)
    set(size [=[
                        cur += ggml_tiled_wdata_size(n_tasks, node);
                    } break;
                case GGML_OP_MUL_MAT_ID:
]=])
    set(size_ours [=[
                        cur += MAX(ggml_tiled_wdata_size(n_tasks, node), jan_serve_product_size(node, n_tasks));
                    } break;
                case GGML_OP_MUL_MAT_ID:
]=])
    set(tiled "    if (ggml_compute_forward_mul_mat_tiled(params, dst)) {")
    set(tiled_ours [=[
    const bool has_product = jan_serve_has_product(params, dst);
    if (!has_product && ggml_compute_forward_mul_mat_tiled(params, dst)) {]=])
    set(barrier [=[
    ggml_barrier(params->threadpool);

#if GGML_USE_LLAMAFILE
    if (src1->type != vec_dot_type) {
]=])
    set(barrier_ours [=[
    if (has_product) {
        jan_serve_prepare_product(params, dst);
        ggml_barrier(params->threadpool);
        jan_serve_compute_product(params, dst);
        return;
    }
    ggml_barrier(params->threadpool);

#if GGML_USE_LLAMAFILE
    if (src1->type != vec_dot_type) {
]=])
    set(declared [=[
void ggml_compute_forward_mul_mat(const struct ggml_compute_params * params, struct ggml_tensor * dst);
]=])
    set(declared_ours [=[
void ggml_compute_forward_mul_mat(const struct ggml_compute_params * params, struct ggml_tensor * dst);
size_t jan_serve_product_size(const struct ggml_tensor * dst, int threads);
bool jan_serve_has_product(const struct ggml_compute_params * params, const struct ggml_tensor * dst);
void jan_serve_prepare_product(const struct ggml_compute_params * params, struct ggml_tensor * dst);
void jan_serve_compute_product(const struct ggml_compute_params * params, struct ggml_tensor * dst);
]=])
    set(include [=[
#include "attention.h"
]=])
    set(include_ours [=[
#include "attention.h"
#include "products.h"
]=])
    # Matrices that are multiplied as they lie are not laid out anew, which would take time and memory of each load.
    set(layout [=[
static const ggml::cpu::tensor_traits * ggml_repack_get_optimal_repack_type(const struct ggml_tensor * cur) {
]=])
    set(layout_ours [=[
static const ggml::cpu::tensor_traits * ggml_repack_get_optimal_repack_type(const struct ggml_tensor * cur) {
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && !defined(__AVX512F__)
    const bool is_ours = cur->type == GGML_TYPE_Q4_0 || cur->type == GGML_TYPE_Q4_K || cur->type == GGML_TYPE_IQ4_NL;
    if (is_ours && cur->ne[2] == 1 && cur->ne[3] == 1) {
        return nullptr;
    }
#endif
]=])
    jan_serve_change(repack.cpp layout layout_ours)
    jan_serve_change(ggml-cpu.c size size_ours tiled tiled_ours barrier barrier_ours)
    jan_serve_change(ops.h declared declared_ours)
    jan_serve_change(ops.cpp include include_ours)
endfunction()
jan_serve_products()
