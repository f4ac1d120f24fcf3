/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c: CPU features, narrowed on request.
 *
 * _GNU_SOURCE for sched_getaffinity and syscall. State: the narrowing, set once at start,
 * and what was detected, which never changes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include "tensorutils/core/cpu.h"

#if defined __x86_64__ && !defined TU_NO_X86
#define X86 1
#include <cpuid.h>
#include <sys/syscall.h>
#else
#define X86 0
#endif

static struct {
    uint32_t bits;
    char model[64];
} cpu;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint32_t allowed = TU_CPU_ALL;

static const char *const bit_name[] = {
#define NAME(name, text) text,
    TU_CPU_TABLE(NAME)
#undef NAME
};

#if X86

/* State components that the operating system must save (Intel SDM vol. 1, 13.1). */
#define XCR0_AVX 0x6u
#define XCR0_AVX512 (XCR0_AVX | 0xE0u)
#define XCR0_AMX 0x60000u

enum { EBX, ECX, EDX, REGISTERS };
enum state { SSE, AVX, AVX512, AMX };

static const struct {
    uint32_t bit;
    unsigned char leaf, sub, reg, pos, state;
} feature[] = {
    {TU_CPU_PCLMUL, 1, 0, ECX, 1, SSE},
    {TU_CPU_SSE42, 1, 0, ECX, 20, SSE},
    {TU_CPU_SHA, 7, 0, EBX, 29, SSE},
    {TU_CPU_AVX2, 7, 0, EBX, 5, AVX},
    {TU_CPU_FMA, 1, 0, ECX, 12, AVX},
    {TU_CPU_F16C, 1, 0, ECX, 29, AVX},
    {TU_CPU_BMI2, 7, 0, EBX, 8, SSE},
    {TU_CPU_GFNI, 7, 0, ECX, 8, SSE},
    {TU_CPU_VPCLMUL, 7, 0, ECX, 10, AVX},
    {TU_CPU_AVX512F, 7, 0, EBX, 16, AVX512},
    {TU_CPU_AVX512BW, 7, 0, EBX, 30, AVX512},
    {TU_CPU_AVX512DQ, 7, 0, EBX, 17, AVX512},
    {TU_CPU_AVX512VL, 7, 0, EBX, 31, AVX512},
    {TU_CPU_AVX512VNNI, 7, 0, ECX, 11, AVX512},
    {TU_CPU_AVX512VBMI, 7, 0, ECX, 1, AVX512},
    {TU_CPU_AVX512VBMI2, 7, 0, ECX, 6, AVX512},
    {TU_CPU_AVX512BITALG, 7, 0, ECX, 12, AVX512},
    {TU_CPU_AVX512VPOPCNTDQ, 7, 0, ECX, 14, AVX512},
    {TU_CPU_AVX512BF16, 7, 1, REGISTERS, 5, AVX512}, /* EAX */
    {TU_CPU_AVX512FP16, 7, 0, EDX, 23, AVX512},
    {TU_CPU_AVXVNNI, 7, 1, REGISTERS, 4, AVX}, /* EAX */
    {TU_CPU_AMXTILE, 7, 0, EDX, 24, AMX},
    {TU_CPU_AMXBF16, 7, 0, EDX, 22, AMX},
    {TU_CPU_AMXINT8, 7, 0, EDX, 25, AMX},
};

_Static_assert(sizeof feature / sizeof *feature == TU_CPU_COUNT, "a row per bit");

static uint64_t read_xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

/* Linux saves tile data only for a process that asked
 * (Documentation/arch/x86/xstate.rst). */
static bool ask_for_tiles(void)
{
#ifdef SYS_arch_prctl
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

static uint32_t detect_bits(void)
{
    unsigned r[3][REGISTERS + 1] = {{0}}; /* leaf 1, leaf 7.0, leaf 7.1 */
    if (!__get_cpuid(1, &r[0][REGISTERS], &r[0][EBX], &r[0][ECX], &r[0][EDX]))
        return 0;
    if (__get_cpuid_count(7, 0, &r[1][REGISTERS], &r[1][EBX], &r[1][ECX], &r[1][EDX]) &&
        r[1][REGISTERS] >= 1)
        __get_cpuid_count(7, 1, &r[2][REGISTERS], &r[2][EBX], &r[2][ECX], &r[2][EDX]);
    bool osxsave = r[0][ECX] >> 27 & 1;
    uint64_t xcr0 = osxsave ? read_xcr0() : 0;
    bool tiles = r[1][EDX] >> 24 & 1 && (xcr0 & XCR0_AMX) == XCR0_AMX && ask_for_tiles();
    bool saved[] = {
        [SSE] = true,
        [AVX] = (xcr0 & XCR0_AVX) == XCR0_AVX,
        [AVX512] = (xcr0 & XCR0_AVX512) == XCR0_AVX512,
        [AMX] = tiles,
    };
    uint32_t bits = 0;
    for (size_t i = 0; i < TU_CPU_COUNT; i++) {
        unsigned row = feature[i].leaf == 1 ? 0 : 1u + feature[i].sub;
        if (saved[feature[i].state] && r[row][feature[i].reg] >> feature[i].pos & 1)
            bits |= feature[i].bit;
    }
    return bits;
}

static void detect_model(void)
{
    unsigned word[12];
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002u + i, &word[4 * i], &word[4 * i + 1],
                         &word[4 * i + 2], &word[4 * i + 3]))
            return;
    char text[sizeof word + 1];
    memcpy(text, word, sizeof word);
    text[sizeof word] = '\0';
    const char *from = text + strspn(text, " ");
    size_t n = strlen(from);
    while (n && from[n - 1] == ' ')
        n--;
    if (n) {
        memcpy(cpu.model, from, n);
        cpu.model[n] = '\0';
    }
}

#else

static uint32_t detect_bits(void)
{
    return 0;
}

static void detect_model(void)
{
}

#endif

static void detect(void)
{
    strcpy(cpu.model, "unknown");
    cpu.bits = detect_bits();
    detect_model();
}

uint32_t tu_cpu_detect(void)
{
    pthread_once(&once, detect);
    return cpu.bits;
}

uint32_t tu_cpu_bits(void)
{
    return tu_cpu_detect() & atomic_load_explicit(&allowed, memory_order_relaxed);
}

const char *tu_cpu_model(void)
{
    pthread_once(&once, detect);
    return cpu.model;
}

#define AMX_BITS ((uint32_t)TU_CPU_AMXTILE | TU_CPU_AMXBF16 | TU_CPU_AMXINT8)

/* What each word keeps, and what of it must be there. */
static const struct {
    const char *name;
    uint32_t keeps, needs;
} level[] = {
    {"scalar", 0, 0},
    {"avx2", TU_CPU_GROUP_AVX2 | TU_CPU_PCLMUL | TU_CPU_SSE42 | TU_CPU_SHA,
     TU_CPU_GROUP_AVX2},
    {"avx512", TU_CPU_ALL & ~AMX_BITS, TU_CPU_GROUP_AVX512},
    {"amx", TU_CPU_ALL, AMX_BITS},
};

static bool find_bit(const char *name, size_t n, uint32_t *bit)
{
    for (unsigned i = 0; i < TU_CPU_COUNT; i++) {
        if (strlen(bit_name[i]) == n && memcmp(bit_name[i], name, n) == 0) {
            *bit = UINT32_C(1) << i;
            return true;
        }
    }
    return false;
}

int tu_cpu_narrow(const char *isa, struct tu_err *err)
{
    uint32_t keeps = 0, needs = 0;
    for (size_t i = 0; i < sizeof level / sizeof *level; i++) {
        if (strcmp(level[i].name, isa) == 0) {
            keeps = level[i].keeps;
            needs = level[i].needs;
            goto check;
        }
    }
    for (const char *s = isa;; s++) {
        size_t n = strcspn(s, ",");
        uint32_t bit;
        if (!find_bit(s, n, &bit))
            return tu_fail(err, TU_EUSAGE,
                           "instruction set '%s': unknown '%.*s' (scalar, avx2, avx512, "
                           "amx or a comma list of feature names)", isa, (int)n, s);
        keeps |= bit;
        s += n;
        if (!*s)
            break;
    }
    needs = keeps;
check:;
    uint32_t lacking = needs & ~tu_cpu_detect();
    if (lacking) {
        char text[160];
        tu_cpu_text(lacking, text, sizeof text);
        return tu_fail(err, TU_ENODEV, "instruction set '%s': this CPU lacks %s", isa,
                       text);
    }
    atomic_store(&allowed, keeps);
    return 0;
}

const struct tu_kernel *tu_kernel_pick(const struct tu_kernel *table, uint32_t bits)
{
    while (table->needs & ~bits)
        table++;
    return table;
}

size_t tu_cpu_text(uint32_t bits, char *out, size_t n)
{
    size_t len = 0;
    if (n)
        out[0] = '\0';
    for (unsigned i = 0; i < TU_CPU_COUNT; i++) {
        size_t word = strlen(bit_name[i]);
        if (!(bits >> i & 1))
            continue;
        if (len + (len > 0) + word + 1 > n)
            break;
        if (len)
            out[len++] = ' ';
        memcpy(out + len, bit_name[i], word + 1);
        len += word;
    }
    return len;
}

unsigned tu_cpu_count(void)
{
    /* The mask must have room for every CPU of the kernel, seldom over 1024. */
    for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        int n = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (n > 0)
            return (unsigned)n;
    }
    return 1;
}
