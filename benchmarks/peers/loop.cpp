// The loop in C++: libmosquitto, and ONNX Runtime's shared library through its C interface.
//
//   g++ -O2 -o loop loop.cpp -lmosquitto -ldl
//   loop --port 1883 --model model.onnx --library libonnxruntime.so
//
// No package that the benchmark installs carries ONNX Runtime's header. Its table of functions only ever grows at the end,
// so the few entries needed here are named by their places; answers are compared with those of every other program.
#include <dlfcn.h>
#include <mosquitto.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr int kWindow = 128, kHop = 64, kChannels = 6;
constexpr double kRateHz = 50.0;
const char* const kLabels[] = {"rest", "press", "row", "curl", "raise", "swing"};
constexpr int kClasses = 6;

struct ApiBase {
  const void* const* (*get_api)(uint32_t version);
  const char* (*version)();
};
enum Place {
  kErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSession = 7,
  kRun = 9,
  kCreateOptions = 10,
  kIntraThreads = 24,
  kInterThreads = 25,
  kTensorOver = 49,
  kCpuMemory = 69
};

class Model {
 public:
  Model(const char* library, const char* file) {
    void* opened = dlopen(library, RTLD_NOW);
    if (!opened) fail(dlerror());
    auto base = reinterpret_cast<const ApiBase* (*)()>(dlsym(opened, "OrtGetApiBase"))();
    api_ = base->get_api(1);
    void *env, *options, *memory;
    call<int, const char*, void**>(kCreateEnv, 3, "loop", &env);
    call<void**>(kCreateOptions, &options);
    call<void*, int>(kIntraThreads, options, 1);
    call<void*, int>(kInterThreads, options, 1);
    call<void*, const char*, void*, void**>(kCreateSession, env, file, options, &session_);
    call<int, int, void**>(kCpuMemory, 1, 0, &memory);
    tensor(memory, input, {1, kChannels, kWindow}, &in_);
    tensor(memory, scores, {1, kClasses}, &out_);
  }

  // From `input` to `scores`, both of which the tensors lie over.
  void run() {
    static const char *const in_name = "x", *const out_name = "y";
    call<void*, void*, const char* const*, void* const*, size_t, const char* const*, size_t, void**>(
        kRun, session_, nullptr, &in_name, &in_, 1, &out_name, 1, &out_);
  }

  float input[kChannels * kWindow];
  float scores[kClasses];

 private:
  template <typename... Arguments>
  void call(Place place, Arguments... arguments) {
    void* status = reinterpret_cast<void* (*)(Arguments...)>(const_cast<void*>(api_[place]))(arguments...);
    if (status) fail(reinterpret_cast<const char* (*)(void*)>(const_cast<void*>(api_[kErrorMessage]))(status));
  }

  template <size_t N>
  void tensor(void* memory, float (&data)[N], std::vector<int64_t> shape, void** made) {
    constexpr int kFloat = 1;
    call<void*, void*, size_t, const int64_t*, size_t, int, void**>(
        kTensorOver, memory, data, sizeof data, shape.data(), shape.size(), kFloat, made);
  }

  [[noreturn]] static void fail(const char* why) {
    std::fprintf(stderr, "%s\n", why);
    std::exit(1);
  }

  const void* const* api_;
  void *session_, *in_ = nullptr, *out_ = nullptr;
};

struct Ring {
  std::vector<float> samples;
  long slot;
};

struct Program {
  Model model;
  std::unordered_map<std::string, Ring> rings;
};

void publish(mosquitto* client, const std::string& key, long slot, const float* scores) {
  int best = static_cast<int>(std::max_element(scores, scores + kClasses) - scores);
  char text[512];
  int n = std::snprintf(text, sizeof text,
                        "{\"id\":\"%s@%ld\",\"key\":\"%s\",\"start\":%.3f,\"end\":%.3f,\"label\":\"%s\","
                        "\"confidence\":%.9g,\"scores\":[",
                        key.c_str(), slot, key.c_str(), slot / kRateHz, (slot + kWindow) / kRateHz, kLabels[best],
                        scores[best]);
  for (int i = 0; i < kClasses; i++)
    n += std::snprintf(text + n, sizeof text - n, "%s%.9g", i ? "," : "", scores[i]);
  n += std::snprintf(text + n, sizeof text - n, "]}");
  mosquitto_publish(client, nullptr, ("results/" + key).c_str(), n, text, 0, false);
}

void on_message(mosquitto* client, void* held, const mosquitto_message* message) {
  auto* program = static_cast<Program*>(held);
  const char* begin = std::strchr(message->topic, '/') + 1;
  std::string key(begin, std::strchr(begin, '/'));
  const char* payload = static_cast<const char*>(message->payload);
  double t;
  std::memcpy(&t, payload, sizeof t);
  auto [at, is_new] = program->rings.try_emplace(key);
  Ring& ring = at->second;
  if (is_new) ring.slot = std::lround(t * kRateHz);
  size_t count = (message->payloadlen - sizeof t) / sizeof(float), before = ring.samples.size();
  ring.samples.resize(before + count);
  std::memcpy(&ring.samples[before], payload + sizeof t, count * sizeof(float));
  while (ring.samples.size() >= kWindow * kChannels) {
    for (int c = 0; c < kChannels; c++)
      for (int i = 0; i < kWindow; i++) program->model.input[c * kWindow + i] = ring.samples[i * kChannels + c];
    program->model.run();
    publish(client, key, ring.slot, program->model.scores);
    ring.samples.erase(ring.samples.begin(), ring.samples.begin() + kHop * kChannels);
    ring.slot += kHop;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char *model = "", *library = "libonnxruntime.so";
  int port = 1883;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string name = argv[i];
    if (name == "--port") port = std::atoi(argv[i + 1]);
    if (name == "--model") model = argv[i + 1];
    if (name == "--library") library = argv[i + 1];
  }
  Program program{{library, model}, {}};
  mosquitto_lib_init();
  mosquitto* client = mosquitto_new(nullptr, true, &program);
  mosquitto_int_option(client, MOSQ_OPT_TCP_NODELAY, 1);
  mosquitto_connect_callback_set(
      client, [](mosquitto* c, void*, int) { mosquitto_subscribe(c, nullptr, "sensors/+/raw", 0); });
  mosquitto_message_callback_set(client, on_message);
  if (mosquitto_connect(client, "127.0.0.1", port, 60) != MOSQ_ERR_SUCCESS) return 1;
  return mosquitto_loop_forever(client, -1, 1);
}
