/* SPDX-License-Identifier: Apache-2.0 */
/* CPU bits against what the kernel says in /proc/cpuinfo; narrowing; picking rows. */
#include <stdlib.h>
#include "../tap.h"
#include "tensorutils/core/cpu.h"

static const struct {
    uint32_t bit;
    const char *flag; /* in /proc/cpuinfo */
} flag[] = {
    {TU_CPU_PCLMUL, "pclmulqdq"},
    {TU_CPU_SSE42, "sse4_2"},
    {TU_CPU_SHA, "sha_ni"},
    {TU_CPU_AVX2, "avx2"},
    {TU_CPU_FMA, "fma"},
    {TU_CPU_F16C, "f16c"},
    {TU_CPU_BMI2, "bmi2"},
    {TU_CPU_GFNI, "gfni"},
    {TU_CPU_VPCLMUL, "vpclmulqdq"},
    {TU_CPU_AVX512F, "avx512f"},
    {TU_CPU_AVX512BW, "avx512bw"},
    {TU_CPU_AVX512DQ, "avx512dq"},
    {TU_CPU_AVX512VL, "avx512vl"},
    {TU_CPU_AVX512VNNI, "avx512_vnni"},
    {TU_CPU_AVX512VBMI, "avx512vbmi"},
    {TU_CPU_AVX512VBMI2, "avx512_vbmi2"},
    {TU_CPU_AVX512BITALG, "avx512_bitalg"},
    {TU_CPU_AVX512VPOPCNTDQ, "avx512_vpopcntdq"},
    {TU_CPU_AVX512BF16, "avx512_bf16"},
    {TU_CPU_AVX512FP16, "avx512_fp16"},
    {TU_CPU_AVXVNNI, "avx_vnni"},
    {TU_CPU_AMXTILE, "amx_tile"},
    {TU_CPU_AMXBF16, "amx_bf16"},
    {TU_CPU_AMXINT8, "amx_int8"},
};

#define AMX ((uint32_t)TU_CPU_AMXTILE | TU_CPU_AMXBF16 | TU_CPU_AMXINT8)

/* The first line of /proc/cpuinfo that starts with key, with a space at its end. */
static bool cpuinfo(const char *key, char *line, int n)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    bool found = false;
    while (f && !found && fgets(line, n - 1, f))
        found = strncmp(line, key, strlen(key)) == 0;
    if (f)
        fclose(f);
    if (found)
        line[strcspn(line, "\n")] = ' ';
    return found;
}

static void test_detect(void)
{
    static char line[16384];
    uint32_t bits = tu_cpu_detect();
    eq_u64(sizeof flag / sizeof *flag, TU_CPU_COUNT, "every bit is tested");
#if defined __x86_64__ && !defined TU_NO_X86
    if (!cpuinfo("flags", line, sizeof line)) {
        tap_skip("detected bits", "no /proc/cpuinfo");
        return;
    }
    for (unsigned i = 0; i < TU_CPU_COUNT; i++) {
        char word[32];
        snprintf(word, sizeof word, " %s ", flag[i].flag);
        bool there = strstr(line, word) != NULL, ours = (bits & flag[i].bit) != 0;
        /* Tiles also need a permission, which a sandbox may refuse. */
        ok(ours == there || (there && flag[i].bit & AMX), "%s: %s", flag[i].flag,
           there ? "there" : "not there");
    }
    if (cpuinfo("model name", line, sizeof line))
        ok(strstr(line, tu_cpu_model()) != NULL, "model '%s'", tu_cpu_model());
#else
    (void)cpuinfo;
    (void)line;
    eq_u64(bits, 0, "a build without x86 has no bits");
    eq_str(tu_cpu_model(), "unknown", "and no model");
#endif
    ok(tu_cpu_count() >= 1, "%u CPUs", tu_cpu_count());
}

static void test_pick(void)
{
    static const struct tu_kernel table[] = {
        {"both", TU_CPU_AVX2 | TU_CPU_FMA, NULL},
        {"one", TU_CPU_FMA, NULL},
        {"plain", 0, NULL},
        {NULL, 0, NULL},
    };
    eq_str(tu_kernel_pick(table, TU_CPU_ALL)->name, "both", "best row first");
    eq_str(tu_kernel_pick(table, TU_CPU_FMA)->name, "one",
           "the row whose bits are all there");
    eq_str(tu_kernel_pick(table, TU_CPU_AVX2)->name, "plain",
           "a part of the bits is not enough");
    eq_str(tu_kernel_pick(table, 0)->name, "plain", "no bits");
}

static void test_text(void)
{
    char text[16];
    eq_u64(tu_cpu_text(TU_CPU_SHA | TU_CPU_PCLMUL, text, sizeof text), 10,
           "length of names");
    eq_str(text, "pclmul sha", "names");
    eq_u64(tu_cpu_text(TU_CPU_ALL, text, sizeof text), 13, "cut at a name");
    eq_str(text, "pclmul sse4.2", "what fits");
    eq_u64(tu_cpu_text(0, text, sizeof text), 0, "no bits");
    eq_str(text, "", "no names");
    eq_u64(tu_cpu_text(TU_CPU_SHA, text, 0), 0, "no room");
}

static void test_narrow(void)
{
    struct tu_err err;
    uint32_t all = tu_cpu_bits();
    eq_int(tu_cpu_narrow("sse9", &err), TU_EUSAGE, "unknown name");
    ok(strstr(err.msg, "'sse9'") != NULL, "is named: %s", err.msg);
    eq_int(tu_cpu_narrow("fma,", &err), TU_EUSAGE, "empty name in a list");
    eq_int(tu_cpu_narrow("", &err), TU_EUSAGE, "no name");
    eq_u64(tu_cpu_bits(), all, "a refusal changes nothing");
    for (unsigned i = 0; i < TU_CPU_COUNT; i++) {
        char name[32];
        tu_cpu_text(flag[i].bit, name, sizeof name);
        bool group = flag[i].bit == TU_CPU_AVX2;
        int want = all & flag[i].bit ? 0 : TU_ENODEV;
        if (group)
            continue;
        eq_int(tu_cpu_narrow(name, NULL), want, "only %s", name);
        if (!want)
            eq_u64(tu_cpu_bits(), flag[i].bit, "bits of %s", name);
    }
    if ((all & TU_CPU_GROUP_AVX512) == TU_CPU_GROUP_AVX512) {
        eq_int(tu_cpu_narrow("avx512", NULL), 0, "avx512");
        ok(!(tu_cpu_bits() & AMX) && tu_cpu_bits() & TU_CPU_AVX512F, "is all but tiles");
        eq_int(tu_cpu_narrow("avx2", NULL), 0, "avx2");
        ok(!(tu_cpu_bits() & TU_CPU_AVX512F) && tu_cpu_bits() & TU_CPU_AVX2,
           "is no AVX-512");
        eq_int(tu_cpu_narrow("avx512f,avx2", NULL), 0, "a list");
        eq_u64(tu_cpu_bits(), TU_CPU_AVX512F | TU_CPU_AVX2, "of two");
    } else {
        eq_int(tu_cpu_narrow("avx512", &err), TU_ENODEV, "avx512: %s", err.msg);
    }
    eq_int(tu_cpu_narrow("scalar", NULL), 0, "scalar");
    eq_u64(tu_cpu_bits(), 0, "is no bits");
    eq_u64(tu_cpu_detect(), all, "detection is not narrowed");
}

int main(void)
{
    test_detect();
    test_pick();
    test_text();
    test_narrow();
    return tap_done();
}
