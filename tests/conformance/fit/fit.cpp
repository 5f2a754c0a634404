// Prints, as a line of JSON, what llama.cpp's --fit chooses for a model on devices that do not exist, and what llama.cpp
// counts on each of them. No memory of the model is allocated.
//
//   fit MODEL N_CTX FREE[,FREE...]                               what --fit chooses; free bytes of each device
//   fit MODEL N_CTX FREE[,FREE...] LAYERS SPLIT[,SPLIT...] [PATTERN...]
//                                                                what is counted for a plan; patterns: in main memory
//
// Links with common/fit.cpp, json.cpp and log.cpp of llama.cpp, and needs the compiler (C++ library) of the installed one.

#include "fit.h"
#include "ggml-backend-impl.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <sstream>
#include <string>

namespace {

// A device that has memory, can do all operations, and computes nothing.
struct pretended {
    std::string name;
    size_t free;
    ggml_backend_buffer_type buft;
    ggml_backend_device device;
};

std::deque<pretended> devices;

pretended & of(ggml_backend_dev_t dev) {
    return *static_cast<pretended *>(dev->context);
}

ggml_backend_dev_t cpu() {
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

// As CUDA's: large batches are computed on the device, with a copy of weights that are in main memory.
bool offload_op(ggml_backend_dev_t, const ggml_tensor * op) {
    switch (op->op) {
        case GGML_OP_GET_ROWS:   return false;
        case GGML_OP_MUL_MAT:    return op->ne[1] >= 32;
        case GGML_OP_MUL_MAT_ID:
        case GGML_OP_ROPE:       return op->ne[2] >= 32;
        default:                 return ggml_nrows(op) >= 32;
    }
}

void get_props(ggml_backend_dev_t dev, ggml_backend_dev_props * props) {
    *props = {};
    props->name = props->description = of(dev).name.c_str();
    props->memory_free = props->memory_total = of(dev).free;
    props->type = GGML_BACKEND_DEVICE_TYPE_GPU;
    props->caps.async = props->caps.events = true; // so that several of them compute parts of a batch at once
}

void add_device(size_t free) {
    auto & made = devices.emplace_back();
    made.name = "GPU" + std::to_string(devices.size() - 1);
    made.free = free;
    made.buft = *ggml_backend_dev_buffer_type(cpu());
    made.buft.device = &made.device;
    made.buft.context = &made;
    made.buft.iface.get_name = [](ggml_backend_buffer_type_t buft) {
        return static_cast<pretended *>(buft->context)->name.c_str();
    };
    made.buft.iface.is_host = nullptr;
    auto name = [](ggml_backend_dev_t dev) { return of(dev).name.c_str(); };
    made.device.reg = cpu()->reg;
    made.device.context = &made;
    made.device.iface = {};
    auto & iface = made.device.iface;
    iface.get_name = iface.get_description = name;
    iface.get_memory = [](ggml_backend_dev_t dev, size_t * free, size_t * total) { *free = *total = of(dev).free; };
    iface.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    iface.get_props = get_props;
    iface.init_backend = [](ggml_backend_dev_t dev, const char * params) {
        ggml_backend_t backend = ggml_backend_dev_init(cpu(), params);
        backend->device = dev;
        return backend;
    };
    iface.get_buffer_type = [](ggml_backend_dev_t dev) { return &of(dev).buft; };
    iface.get_host_buffer_type = [](ggml_backend_dev_t) { return ggml_backend_cpu_buffer_type(); };
    iface.supports_op = [](ggml_backend_dev_t, const ggml_tensor *) { return true; };
    iface.supports_buft = [](ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
        return buft == &of(dev).buft;
    };
    iface.offload_op = offload_op;
    ggml_backend_device_register(&made.device);
}

std::vector<double> numbers(const char * text) {
    std::vector<double> found;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');) {
        found.push_back(std::strtod(part.c_str(), nullptr));
    }
    return found;
}

std::string escaped(const char * pattern) {
    std::string found;
    for (const char * at = pattern; *at; ++at) {
        found += *at == '\\' || *at == '"' ? std::string("\\") + *at : std::string(1, *at);
    }
    return found;
}

} // namespace

// Asked by log.cpp; llama.cpp's own is in console.cpp.
bool tty_can_use_colors() {
    return false;
}

int main(int argc, char ** argv) {
    if (argc < 4) {
        std::fprintf(stderr, "usage: fit MODEL N_CTX FREE[,FREE...] [LAYERS SPLIT[,SPLIT...] [PATTERN...]]\n");
        return 2;
    }
    llama_backend_init();
    for (double free : numbers(argv[3])) {
        add_device(static_cast<size_t>(free));
    }
    llama_model_params model = llama_model_default_params();
    llama_context_params context = llama_context_default_params();
    context.n_ctx = std::strtoul(argv[2], nullptr, 10);
    context.kv_unified = context.swa_full = true;
    std::vector<float> split(llama_max_devices(), 0.0f);
    std::vector<llama_model_tensor_buft_override> overrides(llama_max_tensor_buft_overrides(), {nullptr, nullptr});
    model.tensor_split = split.data();
    model.tensor_buft_overrides = overrides.data();
    int status = COMMON_PARAMS_FIT_STATUS_SUCCESS;
    if (argc > 5) {
        model.n_gpu_layers = std::atoi(argv[4]);
        size_t at = 0;
        for (double share : numbers(argv[5])) {
            split[at++] = static_cast<float>(share);
        }
        for (int index = 6; index < argc; ++index) {
            overrides[index - 6] = {argv[index], ggml_backend_cpu_buffer_type()};
        }
    } else {
        std::vector<size_t> margins(llama_max_devices(), size_t(1) << 30); // --fit-target's default
        status = common_fit_params(argv[1], &model, &context, split.data(), overrides.data(), margins.data(), 4096,
                                   nullptr, GGML_LOG_LEVEL_ERROR);
    }
    std::vector<ggml_backend_dev_t> used;
    uint32_t layers, trained, experts;
    const auto counted = common_get_device_memory_data(argv[1], &model, &context, used, layers, trained, experts,
                                                       GGML_LOG_LEVEL_ERROR);
    std::printf("{\"status\": %d, \"n_ctx\": %u, \"layers\": %d, \"split\": [", status, context.n_ctx, model.n_gpu_layers);
    for (size_t at = 0; at < devices.size(); ++at) {
        std::printf("%s%g", at ? ", " : "", split[at]);
    }
    std::printf("], \"overrides\": [");
    for (size_t at = 0; overrides[at].pattern; ++at) {
        std::printf("%s[\"%s\", \"%s\"]", at ? ", " : "", escaped(overrides[at].pattern).c_str(),
                    ggml_backend_buft_name(overrides[at].buft));
    }
    std::printf("], \"counted\": [");
    for (size_t at = 0; at < counted.size(); ++at) { // the last is main memory
        std::printf("%s%zu", at ? ", " : "", counted[at].model + counted[at].context + counted[at].compute);
    }
    std::printf("]}\n");
    return 0;
}
