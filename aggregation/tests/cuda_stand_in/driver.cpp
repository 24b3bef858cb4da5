// A stand-in for NVIDIA's driver library, for tests: the few functions that `src/cuda/gpu.rs` reaches through cudarc, with
// main memory for device memory and the kernels' own text for the kernels. It shows that the calls, their order and the
// kernels' arguments are right, that seeds are wiped before their memory is freed, and it fails on demand:
//   STAND_IN_MEMORY    bytes of memory of each device
//   STAND_IN_LAUNCHES  launches after which the device is lost
#include "../../src/cuda/host.cpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

typedef int Result;
enum { OK = 0, OUT_OF_MEMORY = 2, INVALID = 1, NOT_READY = 600, LAUNCH_FAILED = 719 };

struct Block { size_t bytes; bool seeds; };
static std::mutex lock;
static std::map<char *, Block> device_memory, host_memory;
static size_t used = 0;
static long launches = 0;

static size_t number(const char *name, size_t otherwise) {
    const char *value = getenv(name);
    return value ? strtoull(value, nullptr, 10) : otherwise;
}

static bool lost() { return launches > (long)number("STAND_IN_LAUNCHES", 1ul << 40); }

[[noreturn]] static void fault(const char *what) {
    fprintf(stderr, "the stand-in driver found a fault: %s\n", what);
    abort();
}

// Whether the bytes lie inside one block of device memory.
static Block *inside(unsigned long long at, size_t bytes) {
    auto next = device_memory.upper_bound((char *)at);
    if (next == device_memory.begin()) return nullptr;
    auto &[start, block] = *--next;
    return (char *)at + bytes <= start + block.bytes ? &block : nullptr;
}

static void must_be_inside(unsigned long long at, size_t bytes) {
    if (!inside(at, bytes)) fault("an access outside the device's memory");
}

static void must_be_wiped(const char *start, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (start[i]) fault("seeds were left in memory that was freed");
}

extern "C" {
Result cuInit(unsigned) { return OK; }
Result cuDeviceGetCount(int *count) { return *count = 2, OK; }
Result cuDeviceGet(int *device, int ordinal) { return *device = ordinal, OK; }
Result cuDeviceGetName(char *name, int len, int) { return snprintf(name, len, "stand-in"), OK; }
Result cuDeviceGetAttribute(int *value, int attribute, int) {
    switch (attribute) {
        case 13: *value = 1000; break;   // clock in kHz: launches of 480 kB of keystream
        case 16: *value = 2; break;      // multiprocessors
        case 75: *value = 9; break;      // compute capability
        case 76: *value = 0; break;
        default: *value = 1;
    }
    return OK;
}
Result cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)(long)(device + 1), OK; }
Result cuDevicePrimaryCtxRelease_v2(int) { return OK; }
Result cuCtxSetCurrent(void *) { return OK; }
Result cuCtxGetCurrent(void **context) { return *context = nullptr, OK; }
Result cuCtxSynchronize() { return lost() ? LAUNCH_FAILED : OK; }
Result cuGetErrorString(Result error, const char **text) {
    return *text = error == LAUNCH_FAILED ? "unspecified launch failure" : "an error", OK;
}
Result cuGetErrorName(Result, const char **text) { return *text = "AN_ERROR", OK; }

Result cuStreamCreate(void **stream, unsigned) { return *stream = (void *)1, OK; }
Result cuStreamDestroy_v2(void *) { return OK; }
Result cuStreamSynchronize(void *) { return lost() ? LAUNCH_FAILED : OK; }
Result cuStreamWaitEvent(void *, void *, unsigned) { return OK; }
Result cuEventCreate(void **event, unsigned) { return *event = (void *)1, OK; }
Result cuEventDestroy_v2(void *) { return OK; }
Result cuEventRecord(void *, void *) { return OK; }
Result cuEventSynchronize(void *) { return OK; }
Result cuEventQuery(void *) {
    static int looks = 0;
    return lost() ? LAUNCH_FAILED : ++looks % 3 ? NOT_READY : OK;
}

Result cuMemAllocAsync(unsigned long long *at, size_t bytes, void *) {
    std::lock_guard<std::mutex> guard(lock);
    if (lost()) return LAUNCH_FAILED;
    if (used + bytes > number("STAND_IN_MEMORY", 1ul << 40)) return OUT_OF_MEMORY;
    char *start = (char *)aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(start, 0xa5, bytes);
    device_memory[start] = Block{bytes, false};
    used += bytes;
    *at = (unsigned long long)start;
    return OK;
}
Result cuMemFreeAsync(unsigned long long at, void *) {
    std::lock_guard<std::mutex> guard(lock);
    auto found = device_memory.find((char *)at);
    if (found == device_memory.end()) fault("memory freed that was never given");
    if (found->second.seeds && !lost()) must_be_wiped(found->first, found->second.bytes);
    used -= found->second.bytes;
    free(found->first);
    device_memory.erase(found);
    return OK;
}
Result cuMemsetD8Async(unsigned long long at, unsigned char value, size_t bytes, void *) {
    std::lock_guard<std::mutex> guard(lock);
    must_be_inside(at, bytes);
    return memset((void *)at, value, bytes), OK;
}
Result cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *) {
    std::lock_guard<std::mutex> guard(lock);
    must_be_inside(to, bytes);
    return memcpy((void *)to, from, bytes), OK;
}
Result cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *) {
    std::lock_guard<std::mutex> guard(lock);
    must_be_inside(from, bytes);
    return memcpy(to, (void *)from, bytes), OK;
}
Result cuMemHostAlloc(void **at, size_t bytes, unsigned) {
    std::lock_guard<std::mutex> guard(lock);
    *at = malloc(bytes);
    memset(*at, 0x5a, bytes);
    host_memory[(char *)*at] = Block{bytes, true};
    return OK;
}
Result cuMemFreeHost(void *at) {
    std::lock_guard<std::mutex> guard(lock);
    auto found = host_memory.find((char *)at);
    if (found == host_memory.end()) fault("page-locked memory freed that was never given");
    must_be_wiped(found->first, found->second.bytes);
    free(at);
    host_memory.erase(found);
    return OK;
}

Result cuModuleLoadData(void **module, const void *text) {
    if (!strstr((const char *)text, ".visible .entry unmask(")) return INVALID;
    return *module = (void *)1, OK;
}
Result cuModuleUnload(void *) { return OK; }
Result cuModuleGetFunction(void **function, void *, const char *name) {
    *function = !strcmp(name, "unmask") ? (void *)1 : !strcmp(name, "add_packed") ? (void *)2 : nullptr;
    return *function ? OK : INVALID;
}
Result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *, void **arguments, void **) {
    std::lock_guard<std::mutex> guard(lock);
    launches++;
    if (lost()) return LAUNCH_FAILED;
    if (gy > 65535 || gz != 1 || by != 1 || bz != 1 || bx > 256 || shared) fault("a launch of an odd shape");
    auto address = [&](int i) { return *(unsigned long long *)arguments[i]; };
    auto word = [&](int i) { return *(u32 *)arguments[i]; };
    if (function == (void *)1) {
        const u64 len = address(2), seeds = sizeof(Seed) * ((u64)word(3) + word(4));
        must_be_inside(address(0), seeds);
        must_be_inside(address(1), 4 * len);
        if ((u64)gx * bx * 16 < len) fault("a launch that leaves words out");
        inside(address(0), seeds)->seeds = true;
        host_unmask(gx, gy, bx, (const Seed *)address(0), (u32 *)address(1), len, word(3), word(4), word(5), word(6),
                    word(7));
    } else {
        const u64 at = address(1), len = address(3), bits = word(4);
        must_be_inside(address(0), 4 * (at + len));
        must_be_inside(address(2), 4 * (((len - 1) * bits) / 32 + 2));
        if ((u64)gx * bx < len) fault("a launch that leaves words out");
        host_add_packed(gx, bx, (u32 *)address(0), at, (const u32 *)address(2), len, bits);
    }
    return OK;
}
}
