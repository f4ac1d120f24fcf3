/* SPDX-License-Identifier: Apache-2.0 */
/* deploy.c: small files as engines have them, seen as coded tensors: which scheme each
 * is, from the words of quantization_config and from the shapes of what is there; and
 * files that lack a part, or have one of another size, kind or number of dimensions. The
 * formats are those of compressed-tensors, AutoGPTQ, AWQ, bitsandbytes, ModelOpt,
 * DeepSeek-V3 and HQQ. */
#include <jansson.h>
#include <stdlib.h>
#include <tensorutils/format.h>
#include <tensorutils/quant.h>
#include <tensorutils/quant/deploy.h>
#include "../inject.h"

enum { MOST = 16 };

struct file {
    struct tu_tensor t[MOST];
    uint64_t dim[MOST][4];
    char name[MOST][80];
    unsigned char *data[MOST];
    size_t n;
};

/* "NAME:DTYPE:4x2" or "NAME:DTYPE:2=8,32" or "NAME:u8:=TEXT": ' is " there. Without dims
 * it is one element. */
static void parse_one(struct file *f, char *word)
{
    struct tu_tensor *t = &f->t[f->n];
    char *dtype = strchr(word, ':'), *dims = dtype ? strchr(dtype + 1, ':') : NULL;
    if (!dims || f->n == MOST)
        abort();
    *dtype++ = *dims++ = 0;
    if (!tu_dtype_named(dtype))
        abort();
    char *value = strchr(dims, '=');
    if (value)
        *value++ = 0;
    snprintf(f->name[f->n], sizeof f->name[0], "%s", word);
    *t = (struct tu_tensor){.name = f->name[f->n], .dtype = tu_dtype_named(dtype)->code,
                            .dim = f->dim[f->n]};
    for (char *p = dims; *p; p += *p == 'x')
        f->dim[f->n][t->rank++] = strtoull(p, &p, 10);
    if (value && (*value == '{' || *value == '!'))
        f->dim[f->n][t->rank++] = strlen(value);
    if (tu_tensor_bytes(t->dtype, t->dim, t->rank, &t->bytes, NULL))
        abort();
    unsigned char *p = f->data[f->n] = calloc((size_t)t->bytes + 8, 1);
    size_t wide = tu_dtype_find(t->dtype)->block_bytes;
    if (value && (*value == '{' || *value == '!'))
        for (size_t i = 0; value[i]; i++)
            p[i] = value[i] == '\'' ? '"' : (unsigned char)value[i];
    else
        for (size_t i = 0; value && *value && i * wide < t->bytes; i++) {
            int64_t v = strtoll(value, &value, 10);
            memcpy(p + i * wide, &v, wide);
            value += *value == ',';
        }
    f->n++;
}

static struct tu_source *make(const char *text, struct tu_err *err)
{
    struct file f = {.n = 0};
    char copy[2048], *save = NULL;
    struct tu_sink *k;
    struct tu_source *s = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        parse_one(&f, w);
    const struct tu_save save_what = {.n = f.n, .tensor = f.t};
    int rc = tu_sink_open(&k, "m.safetensors", NULL, &save_what, NULL, err);
    for (size_t i = 0; !rc && i < f.n; i++)
        if (f.t[i].bytes)
            rc = tu_sink_write(k, i, 0, f.data[i], (size_t)f.t[i].bytes, err);
    if (rc || tu_sink_finish(k, false, err) ||
        tu_source_open(&s, "m.safetensors", NULL, NULL, NULL, err)) {
        printf("# %s: %s\n", text, err->msg);
        abort();
    }
    for (size_t i = 0; i < f.n; i++)
        free(f.data[i]);
    return s;
}

static json_t *config_of(const char *text)
{
    char json[1024];
    size_t i;
    json_t *o = NULL;
    for (i = 0; text[i] && i + 1 < sizeof json; i++)
        json[i] = text[i] == '\'' ? '"' : text[i];
    json[i] = 0;
    if (tu_json_parse(&o, json, i, NULL, NULL))
        abort();
    return o;
}

#define CT4 "m.weight_packed:i32:8x4 m.weight_scale:f32:8x2 m.weight_shape:i64:2=8,32"
#define BITS(n)                                                                          \
    "{'config_groups':{'g':{'targets':['Linear'],'weights':{'num_bits':" #n "}}}}"
#define NAMED                                                                            \
    "{'config_groups':{'a':{'targets':['x'],'weights':{'num_bits':8}},'b':{'targets':"   \
    "[3,'n','m'],'weights':{'num_bits':4}},'c':{'targets':['z'],'weights':{'num_bits':"  \
    "2}}}}"
#define TENSORWISE                                                                       \
    "{'config_groups':{'g':{'weights':{'num_bits':4,'strategy':'tensor'}}}}"
#define GPTQ "m.qweight:i32:4x8 m.qzeros:i32:2x1 m.scales:f16:2x8"
#define AWQ "m.qweight:i32:32x1 m.qzeros:i32:2x1 m.scales:f16:2x8"
#define STATE "m.weight.quant_state.bitsandbytes__nf4:u8:="
#define NF4 "m.weight:u8:128x1 m.weight.absmax:f32:4 m.weight.quant_map:f32:16 "
#define HQQ(bits, group, axis, shape)                                                    \
    "m.W_q:u8:4x32 m.scale:f16:8x1 m.zero:f16:8x1 m.nbits:" bits " m.group_size:" group  \
    " m.axis:" axis " m.shape:" shape

static const struct {
    const char *file, *config;
    int code;
    const char *words; /* in the first tensor's META, or in the message */
    size_t n;          /* of tensors then */
} rows[] = {
    /* compressed-tensors, integers in words. */
    {CT4, "{}", 0, "\"int4:group=16\"", 2},
    {CT4 " other:f32:3", "{}", 0, "\"int4:group=16\"", 3},
    {CT4, NAMED, 0, "\"int4:group=16\"", 2},
    {CT4, TENSORWISE, TU_EFORMAT, "'m.weight_scale': 64 bytes, expected 4", 0},
    {"m.weight_packed:i32:8x4 m.weight_scale:f32:1 m.weight_shape:i64:2=8,32", TENSORWISE,
     0, "\"int4:group=tensor\"", 2},
    {"m.weight_packed:i32:8x4 m.weight_scale:f32:8x1 m.weight_shape:i64:2=8,32", "{}", 0,
     "\"int4:group=channel\"", 2},
    {"m.weight_packed:i32:8x8 m.weight_scale:bf16:8x2 m.weight_shape:i64:2=8,32", BITS(8),
     0, "\"int8:packed,group=16,scale=bf16\"", 2},
    {"m.weight_packed:i32:8x4 m.weight_scale:f16:8x2 m.weight_shape:i64:2=8,32", "{}", 0,
     "\"int4:group=16,scale=f16\"", 2},
    {CT4 " m.weight_zero_point:i32:1x2", "{}", 0, "\"int4:group=16,asym\"", 3},
    {CT4 " m.weight_zero_point:i32:1x3", "{}", TU_EFORMAT,
     "'m.weight_zero_point': 12 bytes", 0},
    {CT4 " m.weight_g_idx:i32:32", "{}", 0, "\"int4:group=16,order\"", 3},
    {"m.weight_packed:i32:8x4 m.weight_scale:f32:8x2", "{}", TU_EINCOMPLETE,
     "'m.weight_shape' is missing", 0},
    {"m.weight_packed:i32:8x4 m.weight_shape:i64:2=8,32", "{}", TU_EINCOMPLETE,
     "'m.weight_scale' is missing", 0},
    {"m.weight_packed:i32:8x4 m.weight_scale:f32:8x2 m.weight_shape:i32:2=8,32", "{}",
     TU_EFORMAT, "'m.weight_shape' holds no two numbers", 0},
    {"m.weight_packed:i32:8x4 m.weight_scale:f32:8x2 m.weight_shape:i32:4=8,0,32", "{}",
     TU_EFORMAT, "'m.weight_shape' holds no two numbers", 0},
    {"m.weight_packed:i32:8x4 m.weight_scale:f32:8x2 m.weight_shape:i64:3=8,32,1", "{}",
     TU_EFORMAT, "'m.weight_shape' holds no two numbers", 0},
    {"m.weight_packed:i32:8x4 m.weight_scale:f32: m.weight_shape:i64:2=8,32", "{}",
     TU_EFORMAT, "'m': 0 groups in 32 columns", 0},
    {"m.weight_packed:i32:8x4 m.weight_scale:f32:8x3 m.weight_shape:i64:2=8,32", "{}",
     TU_EFORMAT, "'m': 3 groups in 32 columns", 0},
    {"m.weight_packed:i32:8x4 m.weight_scale:f32:8x2 m.weight_shape:i64:2=8,64", "{}",
     TU_EFORMAT, "'m.weight_packed': 128 bytes, expected 256", 0},
    {"m.weight_packed:i32:8x4 m.weight_scale:f32:8x2 m.weight_shape:i64:2=-8,32", "{}",
     -1, "", 0},
    {CT4, BITS(9), TU_EUSAGE, "int9", 0},
    {CT4, BITS(4294967300), TU_EUSAGE, "int4294967300", 0},
    /* compressed-tensors and ModelOpt, E2M1 in bytes. */
    {"m.weight_packed:u8:8x16 m.weight_scale:f8_e4m3fn:8x2 m.weight_global_scale:f32:1",
     "{}", 0, "\"nvfp4_packed\"", 3},
    {"m.weight_packed:u8:8x16 m.weight_scale:u8:8x1", "{}", 0, "\"mxfp4_packed\"", 2},
    {"m.weight_packed:u8:8x16 m.weight_global_scale:f32:1", "{}", TU_EINCOMPLETE,
     "'m.weight_scale' is missing", 0},
    {"m.weight_packed:u8:8x16 m.weight_scale:u8:8x2", "{}", TU_EFORMAT,
     "16 bytes, expected 8", 0},
    {"m.weight_packed:u8: m.weight_scale:u8:8x1", "{}", TU_EFORMAT,
     "has 0 dimensions, expected 2", 0},
    {"m.weight_packed:u8:128 m.weight_scale:u8:8x1", "{}", TU_EFORMAT, "has 1 dimensions",
     0},
    {"m.weight_packed:u8:2x4x16 m.weight_scale:u8:8x1", "{}", TU_EFORMAT,
     "has 3 dimensions", 0},
    {"m.weight:u8:8x16 m.weight_scale:f8_e4m3fn:8x2 m.weight_scale_2:f32:", "{}", 0,
     "\"nvfp4_packed:global=modelopt\"", 3},
    /* Scales beside plain weights. */
    {"m.weight:i8:8x32 m.weight_scale:f32:8x1", "{}", 0, "\"int8:group=channel\"", 2},
    {"m.weight:i8:8x32 m.weight_scale:bf16:8x2", "{}", 0, "\"int8:group=16,scale=bf16\"",
     2},
    {"m.weight:i8:8x32 m.weight_scale:f32:1", "{}", 0, "\"int8:group=tensor\"", 2},
    {"m.weight:i8:8x32 m.weight_scale:f32:8x1 m.weight_zero_point:i8:8x1", "{}", 0,
     "\"int8:group=channel,asym\"", 3},
    {"m.weight:i8:8x32 m.weight_scale:f64:", "{}", TU_EFORMAT, "0 groups in 32 columns",
     0},
    {"m.weight:i8:8x32 m.weight_scale:f32:8x5", "{}", TU_EFORMAT,
     "5 groups in 32 columns", 0},
    {"m.weight:f8_e4m3fn:8x32 m.weight_scale:f32:8x1", "{}", 0, "\"fp8_channel\"", 2},
    {"m.weight:f8_e5m2:8x32 m.weight_scale:f32:8x1", "{}", 0, "\"fp8_channel:elem=e5m2\"",
     2},
    {"m.weight:f8_e4m3fn:8x32 m.weight_scale:f32:1", "{}", 0, "\"fp8_tensor\"", 2},
    {"m.weight:f8_e4m3fn:8x32 m.weight_scale:u8:8x1", "{}", 0, "\"mxfp8\"", 2},
    {"m.weight:f8_e5m2:8x32 m.weight_scale:u8:8x1", "{}", 0, "\"mxfp8:elem=e5m2\"", 2},
    {"m.weight:f8_e4m3fn:8x32 m.weight_scale:f32:7x1", "{}", TU_EFORMAT,
     "28 bytes, expected 32", 0},
    {"m.weight:f8_e4m3fn:8x32 m.weight_scale_inv:f32:1x1", "{}", 0, "\"fp8_block", 2},
    {"m.weight:f8_e5m2:8x32 m.weight_scale_inv:f32:2x4", "{'weight_block_size':[4,8]}", 0,
     "block=4x8,elem=e5m2", 2},
    {"m.weight:f8_e4m3fn:8x32 m.weight_scale_inv:f32:2x4", "{'weight_block_size':[0,8]}",
     TU_EUSAGE, "block", 0},
    {"m.weight:f8_e4m3fn:8x32 m.weight_scale_inv:f32:2x4", "{'weight_block_size':'x'}",
     TU_EUSAGE, "block", 0},
    /* GPTQ, AWQ, AutoRound. */
    {GPTQ, "{'bits':4}", 0, "\"gptq4:group=16\"", 4},
    {GPTQ, "{'w_bit':4,'sym':false,'checkpoint_format':'gptq_v2'}", 0,
     "\"gptq4:group=16,asym,v2\"", 4},
    {GPTQ " m.g_idx:i32:32", "{'bits':4,'sym':true}", 0, "\"gptq4:group=16\"", 4},
    {"m.qweight:i32:4x8 m.qzeros:i32:2x1 m.scales:bf16:2x8", "{}", 0,
     "group=16,scale=bf16", 4},
    {AWQ, "{'quant_method':'awq'}", 0, "\"awq4:group=16\"", 3},
    {AWQ, "{'packing_format':'auto_round:auto_awq'}", 0, "\"awq4:group=16\"", 3},
    {GPTQ, "{'packing_format':'auto_round:auto_gptq'}", 0, "\"gptq4:group=16\"", 4},
    {"m.qweight:i32:4x8 m.qzeros:i32:2x1", "{}", TU_EINCOMPLETE, "'m.scales' is missing",
     0},
    {"m.qweight:i32:4x8 m.scales:f16:2x8", "{}", TU_EINCOMPLETE, "'m.qzeros' is missing",
     0},
    {"m.qweight:i32:4x8 m.qzeros:i32:2x1 m.scales:f16:16", "{}", TU_EINCOMPLETE,
     "m.scales", 0},
    {"m.qweight:i32:32 m.qzeros:i32:2x1 m.scales:f16:2x8", "{}", TU_EINCOMPLETE,
     "m.scales", 0},
    {GPTQ, "{'bits':0}", TU_EINCOMPLETE, "m.scales", 0},
    {GPTQ, "{'bits':16}", TU_EINCOMPLETE, "m.scales", 0},
    {GPTQ, "{'bits':5}", TU_EFORMAT, "2 groups in 25 columns", 0},
    {"m.qweight:i32:4x8 m.qzeros:i32:2x1 m.scales:f16:3x8", "{}", TU_EFORMAT,
     "3 groups in 32", 0},
    /* bitsandbytes. */
    {NF4 STATE "{'blocksize':64,'shape':[8,32],'dtype':'float16'}", "{}", 0,
     "\"nf4:block=64\"", 2},
    {NF4 STATE "{'shape':[8,32],'dtype':'bfloat16'}", "{}", 0, "bf16", 2},
    {NF4 STATE "{'shape':[8,32],'dtype':'float16'}", "{}", 0, "f16", 2},
    {NF4 STATE "{'shape':[8,32],'dtype':'float32'}", "{}", 0, "f32", 2},
    {NF4 STATE "{'shape':[8,32]}", "{}", 0, "f32", 2},
    {"m.weight:u8:128x1 m.weight.absmax:u8:4 m.weight.nested_absmax:f32:1 "
     "m.weight.nested_quant_map:f32:256 m.weight.quant_map:f32:16 " STATE
     "{'shape':[8,32],'nested_offset':0.5}",
     "{}", 0, "\"nf4:block=64,nested\"", 5},
    {NF4, "{}", TU_EINCOMPLETE, "'m.weight.quant_state' is missing", 0},
    {NF4 STATE "{'shape':[256]}", "{}", TU_EUNSUP, "no shape of two dimensions", 0},
    {NF4 STATE "{'dtype':'float16'}", "{}", TU_EUNSUP, "no shape of two dimensions", 0},
    {NF4 STATE "!", "{}", TU_EMETA, "", 0},
    {NF4 STATE "{'shape':[8,-32]}", "{}", -1, "", 0},
    {NF4 STATE "{'shape':[8,64]}", "{}", TU_EFORMAT,
     "'m.weight': 128 bytes, expected 256", 0},
    {NF4 STATE "{'shape':[8,32],'blocksize':0}", "{}", TU_EUSAGE, "block", 0},
    {NF4 STATE "{'shape':[8,32],'blocksize':4294967360}", "{}", TU_EUSAGE, "block", 0},
    {NF4 STATE "{'shape':[8,32],'blocksize':128}", "{}", TU_EFORMAT,
     "16 bytes, expected 8", 0},
    /* HQQ. */
    {HQQ("i64:1=4", "i64:1=32", "i64:1=1", "i64:2=8,32"), "{}", 0,
     "\"hqq4:group=32,axis=1,scale=f16\"", 3},
    {HQQ("i32:=4", "i16:=32", "u8:=1", "i32:2=8,32"), "{}", 0,
     "\"hqq4:group=32,axis=1,scale=f16\"", 3},
    {HQQ("i64:1=4", "i64:1=32", "i64:1=1",
         "i64:2=8,32") " m.packing:u8:=3 m.optimize:bool:=1",
     "{}", 0, "\"hqq4:group=32", 3},
    {HQQ("i64:1=4", "i16:=288", "i64:1=1", "i64:2=8,32"), "{}", -1, "", 0},
    {HQQ("i64:2=4", "i64:1=32", "i64:1=1", "i64:2=8,32"), "{}", TU_EINCOMPLETE,
     "'m.nbits'", 0},
    {HQQ("i64:1=4", "i64:1=32", "i64:3=1", "i64:2=8,32"), "{}", TU_EINCOMPLETE,
     "'m.axis'", 0},
    {HQQ("i64:1=4", "i64:1=32", "i64:1=1", "i64:3=8,32"), "{}", TU_EINCOMPLETE,
     "'m.shape'", 0},
    {HQQ("i64:1=4", "i64:0", "i64:1=1", "i64:2=8,32"), "{}", TU_EINCOMPLETE,
     "'m.group_size'", 0},
    {HQQ("i64:1=9", "i64:1=32", "i64:1=1", "i64:2=8,32"), "{}", TU_EUSAGE, "hqq9", 0},
    {HQQ("i64:1=4294967300", "i64:1=32", "i64:1=1", "i64:2=8,32"), "{}", TU_EUSAGE, "hqq",
     0},
    {"m.W_q:u8:4x32 m.zero:f16:8x1", "{}", TU_EINCOMPLETE, "'m.scale' is missing", 0},
};

static void run(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_err err = {0};
        struct tu_source *s = make(rows[i].file, &err);
        json_t *config = config_of(rows[i].config);
        bool any = false;
        int rc = tu_deploy_read(&s, s, config, &any, &err);
        const char *got = rc                          ? err.msg
                          : s->n && s->tensor[0].meta ? s->tensor[0].meta
                                                      : "";
        bool well = (rows[i].code < 0 ? rc != 0 : rc == rows[i].code) &&
                    strstr(got, rows[i].words) && *got && (rc || any) &&
                    (rc || s->n == rows[i].n);
        ok(well, "%zu: %.40s: %s", i, rows[i].file, got);
        if (!well)
            printf("# %s: %zu tensors; expected %s\n", rc ? tu_err_name(rc) : "accepted",
                   rc ? 0 : s->n, rows[i].words);
        if (!rc)
            tu_source_close(s);
        json_decref(config);
    }
}

/* Nothing that is coded: the source itself comes back. Scalars and others keep their
 * places. */
static void nothing(void)
{
    static const char *const files[] = {
        "m.weight:f32:8x32", "m.weight:f32:8 m.weight_scale:f32:8", "weight:f32:2x2",
        ".weight:f32:2x2", "m.qweights:i32:4 .qweight:i32:4x4",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct tu_err err = {0};
        struct tu_source *s = make(files[i], &err), *back = NULL;
        bool any = true;
        int rc = tu_deploy_read(&back, s, NULL, &any, &err);
        ok(!rc && !any && back == s, "%s is coded by nothing: %s", files[i], err.msg);
        if (!rc)
            tu_source_close(back);
    }
}

static struct tu_source *made; /* of the file that is read next */

static int read_made(const void *config, struct tu_err *err)
{
    bool any;
    int rc = tu_deploy_read(&made, made, config, &any, err);
    inject_add(&any, rc ? 0 : sizeof any);
    if (!rc)
        tu_source_close(made);
    return rc;
}

static const char *file;

static const char *make_again(const void *config, int rc, const struct tu_err *err)
{
    struct tu_err none = {0};
    (void)config;
    (void)rc;
    (void)err;
    made = make(file, &none);
    return NULL;
}

static void inject(const char *what, const char *text, bool reads)
{
    json_t *config = config_of(text);
    const struct inject w = {.name = what, .run = read_made, .arg = config, .after = make_again};
    file = what;
    make_again(NULL, 0, NULL);
    if (inject_memory(&w) && reads)
        inject_io(&w);
    tu_source_close(made);
    json_decref(config);
}

int main(void)
{
    scratch_enter();
    run();
    nothing();
    inject(CT4 " other:f32:3", NAMED, true);
    inject(GPTQ, "{'bits':4}", false);
    inject(NF4 STATE "{'shape':[8,32],'dtype':'bfloat16'}", "{}", true);
    inject(HQQ("i64:1=4", "i64:1=32", "i64:1=1", "i64:2=8,32"), "{}", true);
    scratch_leave();
    return tap_done();
}
