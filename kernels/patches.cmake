# Puts the headers beside this file into ggml's CPU backend. Each patch is a piece of ggml-cpu's source and what takes its
# place; README.md says why.
set(jan_serve_kernels ${CMAKE_SOURCE_DIR}/vendor/llama.cpp/ggml/src/ggml-cpu)
file(GLOB jan_serve_headers ${CMAKE_CURRENT_LIST_DIR}/*.h)
file(COPY ${jan_serve_headers} DESTINATION ${jan_serve_kernels})

function(jan_serve_patch file)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${jan_serve_kernels} NORMALIZE OUTPUT_VARIABLE path)
    file(READ ${path} text)
    while(ARGN)
        list(POP_FRONT ARGN before after)
        string(FIND "${text}" "${${after}}" done)
        if(done EQUAL -1)  # else an earlier run of CMake patched this source
            string(FIND "${text}" "${${before}}" found)
            if(found EQUAL -1)
                message(FATAL_ERROR "kernels/patches.cmake: ${path} lacks:\n${${before}}")
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
    # Blocks of rows where they are possible; otherwise the ways of llama.cpp.
    set(split [=[
    const bool use_split_kv_path = !use_ref && (neq1 == 1 && neq3 == 1) && kv_is_f32_or_f16 && (k->type == v->type) && q->type == GGML_TYPE_F32 && nek1 >= 512;
]=])
    set(split_ours [=[
    jan_serve::GroupedAttention groups(dst, nth, params->wsize);
    const bool use_groups = !use_ref && groups.is_possible();
    if (use_groups && groups.is_divided()) {
        groups.compute_parts((float *) params->wdata, ith, nth);
        ggml_barrier(params->threadpool);
        groups.join_parts((float *) params->wdata, ith, nth);
        return;
    }
    const bool use_split_kv_path = !use_ref && !use_groups && (neq1 == 1 && neq3 == 1) && kv_is_f32_or_f16 && (k->type == v->type) && q->type == GGML_TYPE_F32 && nek1 >= 512;
]=])
    set(rows [=[
        // total rows in q
        const int64_t nr = neq1*neq2*neq3;
]=])
    set(rows_ours [=[
        const int64_t nr = use_groups ? groups.units() : neq1*neq2*neq3;
]=])
    set(call [=[
            if (use_tiled) {
                ggml_compute_forward_flash_attn_ext_tiled(params, dst, ir0, ir1);
]=])
    set(call_ours [=[
            if (use_groups) {
                groups.compute(ir0, ir1);
            } else if (use_tiled) {
                ggml_compute_forward_flash_attn_ext_tiled(params, dst, ir0, ir1);
]=])
    set(names include cell split rows call)
    set(pairs)
    foreach(name IN LISTS names)
        list(APPEND pairs ${name} ${name}_ours)
    endforeach()
    jan_serve_patch(ops.cpp ${pairs})

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
    jan_serve_patch(simd-gemm.h tail tail_ours)

    set(room "                        cur += MAX(prefill, decode);")
    set(room_ours "                        cur += MAX(MAX(prefill, decode), jan_serve_attention_size(node));")
    jan_serve_patch(ggml-cpu.c room room_ours)
    set(declared [=[
void ggml_compute_forward_flash_attn_ext(const struct ggml_compute_params * params, struct ggml_tensor * dst);
]=])
    set(declared_ours [=[
void ggml_compute_forward_flash_attn_ext(const struct ggml_compute_params * params, struct ggml_tensor * dst);
size_t jan_serve_attention_size(const struct ggml_tensor * dst);
]=])
    jan_serve_patch(ops.h declared declared_ours)
endfunction()
jan_serve_attention()

# Each operation asks one of ours first.
function(jan_serve_delta_nets)
    set(include [=[
#include "attention.h"
]=])
    set(include_ours [=[
#include "attention.h"
#include "convolution.h"
#include "delta_net.h"
]=])
    set(net [=[
    ggml_tensor * V = dst->src[2];
    int64_t nr = V->ne[1] * V->ne[3];
]=])
    set(net_ours [=[
#ifdef JAN_SERVE_DELTA_NET
    if (const jan_serve::DeltaNet ours(params, dst); ours.is_possible()) {
        ours.run();
        return;
    }
#endif
    ggml_tensor * V = dst->src[2];
    int64_t nr = V->ne[1] * V->ne[3];
]=])
    set(convolution [=[
    GGML_ASSERT(src0->nb[1] == src0->ne[0]*sizeof(float));

    // rows per thread
    const int dr = (nr + nth - 1)/nth;

    // row range for this thread
    const int ir0 = dr*ith;
    const int ir1 = MIN(ir0 + dr, nr);
    const int ir  = ir1 - ir0;

    for (int i3 = 0; i3 < n_s; ++i3) {
        for (int i2 = 0; i2 < n_t; ++i2) {
]=])
    set(convolution_ours [=[
    GGML_ASSERT(src0->nb[1] == src0->ne[0]*sizeof(float));
#ifdef JAN_SERVE_DELTA_NET
    if (const jan_serve::Convolution ours(params, dst); ours.is_possible()) {
        ours.run();
        return;
    }
#endif

    // rows per thread
    const int dr = (nr + nth - 1)/nth;

    // row range for this thread
    const int ir0 = dr*ith;
    const int ir1 = MIN(ir0 + dr, nr);
    const int ir  = ir1 - ir0;

    for (int i3 = 0; i3 < n_s; ++i3) {
        for (int i2 = 0; i2 < n_t; ++i2) {
]=])
    set(concat [=[
static void ggml_compute_forward_concat_f32(
    const ggml_compute_params * params,
    ggml_tensor * dst) {

    const ggml_tensor * src0 = dst->src[0];
    const ggml_tensor * src1 = dst->src[1];
]=])
    set(concat_ours [=[
static void ggml_compute_forward_concat_f32(
    const ggml_compute_params * params,
    ggml_tensor * dst) {
#ifdef JAN_SERVE_DELTA_NET
    if (const jan_serve::TokensAppended ours(params, dst); ours.is_possible()) {
        ours.run();
        return;
    }
#endif

    const ggml_tensor * src0 = dst->src[0];
    const ggml_tensor * src1 = dst->src[1];
]=])
    set(pairs)
    foreach(name IN ITEMS include net convolution concat)
        list(APPEND pairs ${name} ${name}_ours)
    endforeach()
    jan_serve_patch(ops.cpp ${pairs})
endfunction()
jan_serve_delta_nets()

# libllama tells attention in which order a mask's cells lie in their sequences.
function(jan_serve_cell_order)
    set(core ${CMAKE_SOURCE_DIR}/vendor/llama.cpp/src)
    file(COPY ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/cell_order.h DESTINATION ${core})
    set(member "    llama_kv_cells_vec & v_cells;\n")
    set(member_ours "    llama_kv_cells_vec & v_cells;\n    mutable jan_serve::CellOrder cell_order;\n")
    jan_serve_patch(${core}/llama-kv-cache.h member member_ours)
    set(mask [=[
    if (dst->type == GGML_TYPE_F16) {
        set_input_kq_mask_impl<ggml_fp16_t>(args, (ggml_fp16_t *) dst->data, causal_attn);
]=])
    set(mask_ours [=[
    for (int64_t s = 0; s < n_stream; ++s) {
        cell_order.sort(s, n_kv, v_cells.at(seq_to_stream[ubatch->seq_id[s*n_tps][0]]), *ubatch);
    }
    dst->extra = cell_order.data();

    if (dst->type == GGML_TYPE_F16) {
        set_input_kq_mask_impl<ggml_fp16_t>(args, (ggml_fp16_t *) dst->data, causal_attn);
]=])
    jan_serve_patch(${core}/llama-kv-cache.cpp mask mask_ours)

    # Tokens without a cache: those of a batch are its cells.
    set(fill [=[
    GGML_ASSERT(self_kq_mask);
    GGML_ASSERT(ggml_backend_buffer_is_host(self_kq_mask->buffer));
]=])
    set(fill_ours [=[
    GGML_ASSERT(self_kq_mask);
    GGML_ASSERT(ggml_backend_buffer_is_host(self_kq_mask->buffer));
    cell_order.sort(0, n_kv, ubatch->pos);
    self_kq_mask->extra = cell_order.data();
    if (self_kq_mask_swa) {
        self_kq_mask_swa->extra = cell_order.data();
    }
]=])
    set(graph_member "class llm_graph_input_attn_no_cache : public llm_graph_input_i {\npublic:\n")
    set(graph_member_ours "class llm_graph_input_attn_no_cache : public llm_graph_input_i {\n    jan_serve::CellOrder cell_order;\npublic:\n")
    set(batch "#include \"llama-batch.h\"\n")
    set(batch_ours "#include \"llama-batch.h\"\n#include \"cell_order.h\"\n")
    jan_serve_patch(${core}/llama-graph.h batch batch_ours graph_member graph_member_ours)
    jan_serve_patch(${core}/llama-graph.cpp fill fill_ours)
endfunction()
jan_serve_cell_order()

# llama.cpp drops cells behind sliding windows before the parts of a batch that still attend to them are computed, when it
# looks for cells of the later parts. A cache of full size has empty cells for all (swa_full), so that none is dropped.
function(jan_serve_windows_stay)
    set(reuse "                if (!can_use && cells.seq_count(idx) == 1) {\n")
    set(reuse_ours "                if (!can_use && cells.seq_count(idx) == 1 && cells.get_used() + n_tokens > cells.size()) {\n")
    jan_serve_patch(${CMAKE_SOURCE_DIR}/vendor/llama.cpp/src/llama-kv-cache.cpp reuse reuse_ours)
endfunction()
jan_serve_windows_stay()

# Floats: one token is multiplied as it is among others. llamafile's products add up each value by itself.
function(jan_serve_float_products)
    set(few [=[
    if (n < 2)
        return false;
#endif
]=])
    set(few_ours [=[
#if defined(__AVX__)
    const bool is_float = Atype == GGML_TYPE_F32 || Atype == GGML_TYPE_F16 || Atype == GGML_TYPE_BF16;
#else
    const bool is_float = false;
#endif
    if (n < 2 && !is_float)
        return false;
#endif
]=])
    jan_serve_patch(llamafile/sgemm.cpp few few_ours)
endfunction()
jan_serve_float_products()

function(jan_serve_norms)
    set(include [=[
#include "attention.h"
#include "convolution.h"
]=])
    set(include_ours [=[
#include "attention.h"
#include "norm.h"
#include "convolution.h"
]=])
    set(squares [=[
                ggml_float sum = 0.0;
                // worth switching to explicit SIMD?
                for (int64_t i00 = 0; i00 < ne00; i00++) {
                    sum += (ggml_float)(x[i00] * x[i00]);
                }

                const float mean  = sum/ne00;
]=])
    set(squares_ours [=[
                const float mean  = jan_serve::sum_of_squares(x, ne00)/ne00;
]=])
    jan_serve_patch(ops.cpp include include_ours squares squares_ours)
endfunction()
jan_serve_norms()

# Half floats are converted by the processor where it can, in place of a table of 256 KiB and of arithmetic on bits.
function(jan_serve_half_floats)
    set(convert [=[
        #define GGML_CPU_COMPUTE_FP32_TO_FP16(x) _cvtss_sh(x, 0)
    #endif
]=])
    set(convert_ours [=[
        #define GGML_CPU_COMPUTE_FP32_TO_FP16(x) _cvtss_sh(x, 0)
    #endif
    #define GGML_CPU_FP16_TO_FP32(x) GGML_CPU_COMPUTE_FP16_TO_FP32(x)
    #define GGML_CPU_FP32_TO_FP16(x) GGML_CPU_COMPUTE_FP32_TO_FP16(x)
]=])
    jan_serve_patch(simd-mappings.h convert convert_ours)
endfunction()
jan_serve_half_floats()

function(jan_serve_products)
    set(size [=[
                        cur += ggml_tiled_wdata_size(n_tasks, node);
                    } break;
                case GGML_OP_MUL_MAT_ID:
]=])
    set(size_ours [=[
                        cur += ggml_tiled_wdata_size(n_tasks, node);
                        cur = MAX(cur, jan_serve_product_size(node, n_tasks));
                    } break;
                case GGML_OP_MUL_MAT_ID:
]=])
    set(experts_size [=[
                        cur += ggml_tiled_wdata_size(n_tasks, node);
                    } break;
                case GGML_OP_OUT_PROD:
]=])
    set(experts_size_ours [=[
                        cur += ggml_tiled_wdata_size(n_tasks, node);
                        cur = MAX(cur, jan_serve_product_size(node, n_tasks));
                    } break;
                case GGML_OP_OUT_PROD:
]=])
    set(tiled "    if (ggml_compute_forward_mul_mat_tiled(params, dst)) {")
    set(tiled_ours [=[
    if (jan_serve_multiply(params, dst)) {
        return;
    }
    if (ggml_compute_forward_mul_mat_tiled(params, dst)) {]=])
    set(experts [=[
static void ggml_compute_forward_mul_mat_id(
        const struct ggml_compute_params * params,
              struct ggml_tensor * dst) {
]=])
    set(experts_ours [=[
static void ggml_compute_forward_mul_mat_id(
        const struct ggml_compute_params * params,
              struct ggml_tensor * dst) {
    if (jan_serve_multiply(params, dst)) {
        return;
    }
]=])
    set(declared [=[
void ggml_compute_forward_mul_mat(const struct ggml_compute_params * params, struct ggml_tensor * dst);
]=])
    set(declared_ours [=[
void ggml_compute_forward_mul_mat(const struct ggml_compute_params * params, struct ggml_tensor * dst);
size_t jan_serve_product_size(const struct ggml_tensor * dst, int threads);
bool jan_serve_multiply(const struct ggml_compute_params * params, struct ggml_tensor * dst);
]=])
    set(include [=[
#include "traits.h"
]=])
    set(include_ours [=[
#include "traits.h"
#include "ops.h"
#include "products.h"
]=])
    # Matrices that are multiplied as they lie are not laid out anew, which would take time and memory of each load.
    set(layout [=[
static const ggml::cpu::tensor_traits * ggml_repack_get_optimal_repack_type(const struct ggml_tensor * cur) {
]=])
    set(layout_ours [=[
static const ggml::cpu::tensor_traits * ggml_repack_get_optimal_repack_type(const struct ggml_tensor * cur) {
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && (!defined(__AVX512F__) || defined(__AVX512VNNI__))
    const bool is_ours = cur->type == GGML_TYPE_Q4_0 || cur->type == GGML_TYPE_Q4_K || cur->type == GGML_TYPE_IQ4_NL ||
                         cur->type == GGML_TYPE_MXFP4 || cur->type == GGML_TYPE_Q2_K;
    if (is_ours) {
        return nullptr;
    }
#endif
]=])
    jan_serve_patch(repack.cpp layout layout_ours)
    jan_serve_patch(ggml-cpu.c size size_ours experts_size experts_size_ours tiled tiled_ours experts experts_ours)
    jan_serve_patch(ops.h declared declared_ours)
    jan_serve_patch(traits.cpp include include_ours)
endfunction()
jan_serve_products()

# gcc 12.2 takes what _tile_loadconfig reads for its first eight bytes and drops the rest: products with AMX then end in SIGILL.
function(jan_serve_tile_config)
    set(load "    _tile_loadconfig(&tc);")
    set(load_ours [=[
#ifdef __GNUC__
    __asm__ volatile("" : : "r"(&tc) : "memory");
#endif
    _tile_loadconfig(&tc);  // after all of it is written]=])
    jan_serve_patch(amx/mmq.cpp load load_ours)
endfunction()
jan_serve_tile_config()

# A thread that waits for others at the end of an operation spins. Where other programs run, too, one of them may have no
# core, and would not get that of the thread that waits for it until the system takes it away: milliseconds for each of the
# hundreds of operations of a step. Where the first thread computes two nodes in a row, no thread waits between them (ADR 0063).
function(jan_serve_barrier)
    set(head [=[
void ggml_barrier(struct ggml_threadpool * tp) {
]=])
    set(head_ours [=[
#include "waiting.h"

void ggml_barrier(struct ggml_threadpool * tp) {
]=])
    set(last [=[
        atomic_fetch_add_explicit(&tp->n_barrier_passed, 1, memory_order_seq_cst);
        return;
]=])
    set(last_ours [=[
        atomic_store_explicit(&tp->jan_serve_chunk, n_threads, memory_order_relaxed);
        atomic_fetch_add_explicit(&tp->n_barrier_passed, 1, memory_order_seq_cst);
        jan_serve_wake(&tp->n_barrier_passed);
        return;
]=])
    set(spin [=[
    while (atomic_load_explicit(&tp->n_barrier_passed, memory_order_relaxed) == n_passed) {
        ggml_thread_cpu_relax();
    }
]=])
    set(spin_ours [=[
    for (int looks = 0; atomic_load_explicit(&tp->n_barrier_passed, memory_order_relaxed) == n_passed; looks++) {
        if (looks < JAN_SERVE_LOOKS) {
            ggml_thread_cpu_relax();
        } else {
            jan_serve_sleep(&tp->n_barrier_passed, n_passed);
        }
    }
]=])
    set(counter [=[
    atomic_int GGML_CACHE_ALIGN current_chunk; // currently processing chunk during Mat_Mul, shared between all the threads.
]=])
    set(counter_ours [=[
    atomic_int GGML_CACHE_ALIGN current_chunk; // currently processing chunk during Mat_Mul, shared between all the threads.
    atomic_int jan_serve_chunk; // the same of our products; each barrier sets it to the number of threads
]=])
    set(start [=[
    // Kick all threads to start the new graph
]=])
    set(start_ours [=[
    atomic_store_explicit(&threadpool->jan_serve_chunk, n_threads, memory_order_relaxed);
    // Kick all threads to start the new graph
]=])
    set(meet [=[
        if (state->ith == 0 && cplan->abort_callback &&
]=])
    set(meet_ours [=[
        if (jan_serve_goes_on(cgraph, node_n)) {
            continue;
        }
        if (state->ith == 0 && cplan->abort_callback &&
]=])
    jan_serve_patch(ggml-cpu.c head head_ours last last_ours spin spin_ours counter counter_ours start start_ours meet meet_ours)
endfunction()
jan_serve_barrier()
