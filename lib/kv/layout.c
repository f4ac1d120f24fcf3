/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c: the table of layouts, and the index formula that an order of axes is. */
#include <inttypes.h>
#include <string.h>
#include <tensorutils/kv.h>

const struct tu_kv_layout tu_kv_layouts[] = {
    {"nhd", "by tokens: [T, H, D]; the records of a stream", NULL, "thd", "thd"},
    {"hnd", "by heads: [H, T, D]; Hugging Face without the batch", NULL, "htd", "htd"},
    {"nhd-paged", "pages in the order of tokens: [NB, B, H, D] each; fa-run, flash-attn",
     "flash_attn_interface.py: k_cache with block_table", "pthd", "pthd"},
    {"hnd-paged", "pages by heads: [NB, H, B, D] each", "FlashInfer kv_layout.rst", "phtd",
     "phtd"},
    {"vllm", "first PagedAttention: K [NB, H, D/x, B, x], V [NB, H, D, B]",
     "vLLM csrc/cache_kernels.cu", "phdtx", "phdt"},
    {"vllm-fa", "vLLM's flash-attn back end: [2, NB, B, H, D]",
     "vLLM v1/attention/backends/flash_attn.py", "spthd", "spthd"},
    {"vllm-fa-hnd", "the same by heads: [2, NB, H, B, D]",
     "vLLM v1/attention/backends/flash_attn.py", "sphtd", "sphtd"},
    {"flashinfer", "FlashInfer NHD: [NB, 2, B, H, D]", "FlashInfer kv_layout.rst", "psthd",
     "psthd"},
    {"flashinfer-hnd", "FlashInfer HND: [NB, 2, H, B, D]", "FlashInfer kv_layout.rst",
     "pshtd", "pshtd"},
    {"trt", "TensorRT-LLM's pool: [NB, L, 2, H, B, D]", "TensorRT-LLM kvCacheManager.h",
     "plshtd", "plshtd"},
    {"trt-edge", "TensorRT Edge-LLM: [2, NB, B, H, D] in pages of 128", NULL, "spthd",
     "spthd"},
    {"sglang", "sglang's host layer_first: [2, L, T, H, D]", "sglang memory_pool_host.py",
     "slthd", "slthd"},
    {"sglang-page", "sglang's host page_first: [2, T, L, H, D]",
     "sglang memory_pool_host.py", "stlhd", "stlhd"},
    {"sglang-direct", "sglang's page_first_direct: [2, NB, L, B, H, D]",
     "sglang memory_pool_host.py", "splthd", "splthd"},
    {"vattention", "vAttention: [requests, most tokens, H, D] each, a page for a request",
     "vattention/utils.h", "pthd", "pthd"},
    {"vattention-mega", "its megacache: [2, requests, most tokens, L, H, D]",
     "vattention/utils.h", "sptlhd", "sptlhd"},
    {"2ltd", "LMCache KV_2LTD: [2, L, T, H*D]", "LMCache memory_management.py", "slthd",
     "slthd"},
    {"t2d", "LMCache KV_T2D: [T, 2, H*D] of one layer", "LMCache memory_management.py",
     "tshd", "tshd"},
    {"2td", "LMCache KV_2TD: [2, T, H*D] of one layer", "LMCache memory_management.py",
     "sthd", "sthd"},
    {"ltd", "latents of all layers: [L, T, R]", "LMCache KV_MLA", "lthd", "lthd"},
    {"ht", "llama.cpp's transposed values: [H, D, T]", "llama.cpp llama-kv-cache.cpp",
     "thd", "hdt"},
    {NULL, NULL, NULL, NULL, NULL},
};

static const char *layout_name(const void *ctx, size_t i)
{
    (void)ctx;
    return tu_kv_layouts[i].name;
}

int tu_kv_layout_find(const struct tu_kv_layout **out, const char *name,
                      struct tu_err *err)
{
    char text[88];
    if (!*name)
        name = "nhd";
    for (const struct tu_kv_layout *l = tu_kv_layouts; l->name; l++)
        if (!strcmp(l->name, name)) {
            *out = l;
            return 0;
        }
    tu_fail(err, TU_EUSAGE, "layout '%s': unknown", tu_text_short(name, strlen(name), text));
    tu_suggest(err, name, "", layout_name, NULL);
    return TU_EUSAGE;
}

bool tu_kv_layout_has(const struct tu_kv_layout *l, char axis)
{
    return strchr(l->k, axis) != NULL;
}

/* Length of an axis; 0 for one that the array does not have. */
static uint64_t length(const struct tu_kv_place *p, char axis)
{
    const struct tu_kv_geometry *g = &p->of;
    switch (axis) {
    case 'l': return g->layers;
    case 's': return 2;
    case 'p': return g->blocks;
    case 't': return g->block;
    case 'h': return g->heads;
    case 'd': return g->dim / p->x;
    default: return p->x;
    }
}

static uint64_t *stride(struct tu_kv_place *p, char axis)
{
    switch (axis) {
    case 'l': return &p->layer;
    case 's': return &p->side;
    case 'p': return &p->page;
    case 't': return &p->token;
    case 'h': return &p->head;
    case 'd': return &p->col;
    default: return &p->low;
    }
}

int tu_kv_place(struct tu_kv_place *out, const struct tu_kv_layout *l,
                enum tu_kv_side side, const struct tu_kv_geometry *g, struct tu_err *err)
{
    const char *order = side == TU_KV_K ? l->k : l->v;
    *out = (struct tu_kv_place){.of = *g, .x = 1, .elements = 1};
    if (!g->elem || !g->heads || !g->dim || !g->block || !g->layers)
        return tu_fail(err, TU_EUSAGE,
                       "layout '%s': %" PRIu64 " layers, %" PRIu64 " heads, %" PRIu64
                       " columns, %" PRIu64 " tokens: none may be 0",
                       l->name, g->layers, g->heads, g->dim, g->block);
    if (strchr(order, 'x')) {
        out->x = g->elem > 16 ? 1 : 16 / g->elem;
        if (g->dim % out->x)
            return tu_fail(err, TU_EUSAGE,
                           "layout '%s': %" PRIu64 " columns do not divide by x = %"
                           PRIu64,
                           l->name, g->dim, out->x);
    }
    for (size_t i = 0; order[i]; i++)
        if (!(g->latent && order[i] == 'h'))
            out->dim[out->rank++] = length(out, order[i]);
    for (size_t i = strlen(order); i-- > 0;) {
        *stride(out, order[i]) = out->elements;
        if (tu_mul_over(out->elements, length(out, order[i]), &out->elements) ||
            out->elements > TU_SIZE_MAX)
            return tu_fail(err, TU_ESIZE, "layout '%s': the array is too large", l->name);
    }
    if (out->x == 1 && !strchr(order, 'x'))
        out->low = 0;
    if (tu_mul_over(out->elements, g->elem, &out->bytes))
        return tu_fail(err, TU_ESIZE, "layout '%s': the array is too large", l->name);
    return 0;
}

int tu_kv_place_of(struct tu_kv_place *out, const struct tu_kv_layout *l,
                   enum tu_kv_side side, const uint64_t *dim, unsigned rank,
                   unsigned elem, bool latent, struct tu_err *err)
{
    const char *order = side == TU_KV_K ? l->k : l->v;
    struct tu_kv_geometry g = {.layers = 1, .heads = 1, .dim = 1, .block = 1, .blocks = 1,
                               .elem = elem, .latent = latent};
    unsigned at = 0;
    for (size_t i = 0; order[i]; i++) {
        if (latent && order[i] == 'h')
            continue;
        if (at == rank)
            return tu_fail(err, TU_ESIZE, "%u dimensions do not fit layout '%s'", rank,
                           l->name);
        uint64_t n = dim[at++];
        switch (order[i]) {
        case 'l': g.layers = n; break;
        case 'p': g.blocks = n; break;
        case 't': g.block = n; break;
        case 'h': g.heads = n; break;
        case 'd':
        case 'x':
            if (tu_mul_over(g.dim, n, &g.dim))
                return tu_fail(err, TU_ESIZE, "layout '%s': sizes overflow", l->name);
            break;
        default: break;
        }
    }
    if (at != rank)
        return tu_fail(err, TU_ESIZE, "%u dimensions do not fit layout '%s'", rank,
                       l->name);
    int rc = tu_kv_place(out, l, side, &g, err);
    if (!rc && (out->rank != rank || memcmp(out->dim, dim, rank * sizeof *dim) != 0))
        rc = tu_fail(err, TU_ESIZE, "the shape is none of layout '%s'", l->name);
    return rc;
}

uint64_t tu_kv_offset(const struct tu_kv_place *p, uint64_t layer, uint64_t side,
                      uint64_t page, uint64_t token, uint64_t head, uint64_t col)
{
    return layer * p->layer + side * p->side + page * p->page + token * p->token +
           head * p->head + col / p->x * p->col + col % p->x * p->low;
}
