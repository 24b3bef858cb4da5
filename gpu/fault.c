/* Loses a real GPU in the middle of its work. Under the name libcuda.so it is found before the driver (libcuda.so.1), which it
 * needs and whose functions it leaves alone but one: once there is a file FAULT_FILE, a launch launches a kernel that traps first.
 * CUDA calls that unrecoverable: every later call in this process fails, as after a fault of the hardware. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int Result;
typedef unsigned u32;
typedef Result Launch(void *, u32, u32, u32, u32, u32, u32, u32, void *, void **, void **);
typedef Result Load(void **, const void *);
typedef Result Function(void **, void *, const char *);

static const char TRAP[] = ".version 8.4\n.target sm_75\n.address_size 64\n.visible .entry fault() { trap; }\n";
static atomic_int lost;

__attribute__((visibility("default")))
Result cuLaunchKernel(void *function, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 shared, void *stream, void **arguments, void **extra) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *module, *trap;
    Launch *launch = (Launch *)dlsym(driver, "cuLaunchKernel");
    const char *file = getenv("FAULT_FILE");
    if (file && !access(file, F_OK) && !atomic_exchange(&lost, 1)) {
        Load *load = (Load *)dlsym(driver, "cuModuleLoadData");
        Function *find = (Function *)dlsym(driver, "cuModuleGetFunction");
        Result result = load(&module, TRAP);
        if (!result) result = find(&trap, module, "fault");
        if (!result) result = launch(trap, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        fprintf(stderr, "fault: a kernel that traps was launched, the driver said %d\n", result);
        if (result) abort(); /* Nothing would be lost, and the test would pass for nothing. */
    }
    return launch(function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra);
}
