/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.c: the classic Megatron-LM layout, read:
 * mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt.
 *
 * Source: Megatron-LM megatron/training/checkpointing.py (names, args, versions). The
 * number of layers in each stage and chunk is taken from the files themselves. */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "megatron.h"

#define WEIGHTS "model_optim_rng.pt"
#define RANKS_MAX (1u << 20) /* of a mesh that is looked for */

/* Folder of the ranks: the root itself, or the iteration that the tracker or the key
 * names. */
int tui_megatron_folder(struct tu_ckpt *c, const char *iteration, char **out,
                        struct tu_err *err)
{
    char *tracker = tui_join(c->arena, c->root, TUI_TRACKER, err), *text = NULL, *probe;
    size_t n;
    int rc = 0;
    *out = c->root;
    if (!tracker)
        return TU_ENOMEM;
    if (!iteration && !tui_is_file(tracker)) {
        const char *base = strrchr(c->root, '/');
        base = base ? base + 1 : c->root;
        if (!strncmp(base, "iter_", 5))
            c->iteration = strtoll(base + 5, NULL, 10); /* else it is a release */
        return 0;
    }
    if (!iteration) {
        rc = tu_file_read(tracker, 64, &text, &n, err);
        if (!rc)
            text[strcspn(text, " \r\n")] = 0;
    }
    const char *word = iteration ? iteration : text;
    if (!rc && strcmp(word, "release")) {
        uint64_t number;
        rc = tu_parse_u64(word, &number, err);
        if (rc)
            rc = tu_fail(err, TU_EFORMAT,
                         "%.150s: expected an iteration or the word release", tracker);
        c->iteration = (int64_t)number;
        probe = rc ? NULL
                   : tu_arena_printf(c->arena, err, "%s/iter_%07llu", c->root,
                                     (unsigned long long)number);
    } else {
        probe = rc ? NULL : tui_join(c->arena, c->root, "release", err);
    }
    tu_free(text);
    if (!rc && probe && !tui_is_dir(probe))
        rc = tu_fail(err, TU_EINCOMPLETE,
                     "%.150s: the tracker names this folder, but it is not there", probe);
    *out = probe;
    return rc ? rc : probe ? 0 : TU_ENOMEM;
}

/* Fields of mp_rank_01_002_003; returns how many, 0 for another name. */
static unsigned rank_fields(const char *name, uint32_t field[3])
{
    unsigned n = 0;
    if (strncmp(name, "mp_rank_", 8))
        return 0;
    for (const char *p = name + 8; n < 3; p++) {
        char *end;
        if (*p < '0' || *p > '9')
            return 0;
        field[n++] = (uint32_t)strtoul(p, &end, 10);
        p = end;
        if (*p != '_')
            return *p ? 0 : n;
    }
    return 0;
}

static int is_rank(const struct dirent *d)
{
    uint32_t f[3];
    return rank_fields(d->d_name, f) > 0;
}

static int any_rank(const char *path)
{
    struct dirent **list = NULL;
    int n = scandir(path, &list, is_rank, alphasort);
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
    return n > 0;
}

static int megatron_detect(const char *path)
{
    char tracker[4096];
    snprintf(tracker, sizeof tracker, "%s/" TUI_TRACKER, path);
    return !tui_is_dir(path) ? 0 : any_rank(path) ? 95 : tui_is_file(tracker) ? 70 : 0;
}

static int open_file(struct tu_ckpt *c, const char *folder, struct tu_coord at,
                     const char *name, const struct tu_shard_opts *o,
                     const struct tu_job *job, struct tu_err *err)
{
    struct tu_source *s = NULL;
    uint32_t number;
    char *dir = tui_join(c->arena, folder, name, err);
    char *path = dir ? tui_join(c->arena, dir, WEIGHTS, err) : NULL;
    char *old = dir ? tui_join(c->arena, dir, "model_rng.pt", err) : NULL;
    if (!path || !old)
        return TU_ENOMEM;
    if (!tui_is_file(path) && tui_is_file(old))
        path = old;
    int rc = tu_file_expect(path, err, "the weights of tp=%u pp=%u ep=%u", at.tp, at.pp,
                            at.ep);
    if (!rc)
        rc = tu_source_open(&s, path, tu_format_find("torch"), &o->open, job, err);
    return rc ? rc : tui_add_source(c, path, s, at, &number, err);
}

static const struct tu_pnode *root_of(const struct tu_ckpt *c, uint32_t f)
{
    const struct tu_source *s = c->file[f].source;
    return s->pickle ? tu_pickle_root(s->pickle) : NULL;
}

/* The folder of one rank as Megatron names it. */
void tui_megatron_rank(const struct tu_ckpt *c, struct tu_coord at, char out[64])
{
    int n = snprintf(out, 64, "mp_rank_%02u", at.tp);
    if (c->pp > 1)
        n += snprintf(out + n, 64 - (size_t)n, "_%03u", at.pp);
    if (c->ep > 1)
        snprintf(out + n, 64 - (size_t)n, "_%03u", at.ep);
}

/* Open the first file, learn the mesh from its arguments or from the keys, then open the
 * others. */
static int open_first(struct tu_ckpt *c, const char *folder, const struct tu_spec *spec,
                      const struct tu_shard_opts *o, const struct tu_job *job,
                      struct tui_megatron *g, struct tu_err *err)
{
    struct dirent **list = NULL;
    int n = scandir(folder, &list, is_rank, alphasort), rc = 0;
    if (n <= 0)
        rc = tu_fail(err, TU_EINCOMPLETE, "%.200s: no folder mp_rank_*", folder);
    else
        rc = open_file(c, folder, (struct tu_coord){0}, list[0]->d_name, o, job, err);
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
    if (rc)
        return rc;
    c->args = tu_pnode_get(root_of(c, 0), "args");
    rc = tui_args_read(c->args, g, &c->model, err);
    const struct {
        const char *key;
        uint32_t *to;
    } size[] = {{"tp", &g->tp}, {"pp", &g->pp}, {"vpp", &g->vpp}, {"ep", &g->ep}};
    for (size_t i = 0; i < 4 && !rc; i++) {
        uint64_t v;
        rc = tu_spec_u64(spec, size[i].key, *size[i].to, &v, err);
        if (!rc && (!v || v > 4096))
            rc = tu_fail(err, TU_EUSAGE, "%s=%llu is out of range", size[i].key,
                         (unsigned long long)v);
        *size[i].to = (uint32_t)v;
    }
    if (!rc && (uint64_t)g->tp * g->pp * g->ep > RANKS_MAX)
        rc = tu_fail(err, TU_EUNSUP, "tp=%u pp=%u ep=%u are more than %u ranks", g->tp, g->pp,
                     g->ep, RANKS_MAX);
    if (rc)
        tu_err_prefix(err, "%s", c->file[0].path);
    c->tp = g->tp;
    c->pp = g->pp;
    c->vpp = g->vpp;
    c->ep = g->ep;
    return rc;
}

static int missing(const struct tu_ckpt *c, const char *folder, struct tu_err *err)
{
    char list[320] = "", name[64];
    size_t n = 0, at = 0;
    struct tu_coord k = {0};
    for (k.pp = 0; k.pp < c->pp; k.pp++)
        for (k.ep = 0; k.ep < c->ep; k.ep++)
            for (k.tp = 0; k.tp < c->tp; k.tp++) {
                char path[4096];
                tui_megatron_rank(c, k, name);
                snprintf(path, sizeof path, "%s/%s", folder, name);
                if (tui_is_dir(path) || n++ > 3)
                    continue;
                at += (size_t)snprintf(list + at, sizeof list - at,
                                       "%s%s (tp=%u pp=%u ep=%u)", at ? ", " : "", name,
                                       k.tp, k.pp, k.ep);
            }
    return n ? tu_fail(err, TU_EINCOMPLETE, "%.80s: %zu of %u ranks are missing: %s%s",
                       folder, n, c->tp * c->pp * c->ep, list, n > 4 ? ", …" : "")
             : 0;
}

static bool in_mesh(const struct tu_ckpt *c, const char *name)
{
    uint32_t f[3] = {0};
    char own[64];
    (void)rank_fields(name, f);
    struct tu_coord at = {.tp = f[0], .pp = c->pp > 1 ? f[1] : 0,
                          .ep = c->ep > 1 ? f[c->pp > 1 ? 2 : 1] : 0};
    tui_megatron_rank(c, at, own);
    return at.tp < c->tp && at.pp < c->pp && at.ep < c->ep && !strcmp(own, name);
}

/* A folder of another mesh's rank: of two saves in one folder one is read. */
static int find_stray(struct tu_ckpt *c, const char *folder, const struct tu_job *job,
                      struct tu_err *err)
{
    struct dirent **list = NULL;
    int n = scandir(folder, &list, is_rank, alphasort), rc = 0;
    for (int i = 0; i < n; i++) {
        if (!rc && !c->stray && !in_mesh(c, list[i]->d_name)) {
            c->stray = tui_join(c->arena, folder, list[i]->d_name, err);
            rc = c->stray ? 0 : TU_ENOMEM;
        }
        free(list[i]);
    }
    free(list);
    if (c->stray)
        tu_job_warn(job, "%s: is no rank of tp=%u pp=%u ep=%u, as the arguments say them, and is "
                         "not read", c->stray, c->tp, c->pp, c->ep);
    return rc;
}

static int open_ranks(struct tu_ckpt *c, const char *folder,
                      const struct tu_shard_opts *o, const struct tu_job *job,
                      struct tu_err *err)
{
    struct tu_coord k = {0};
    char name[64];
    int rc = missing(c, folder, err);
    if (!rc)
        rc = find_stray(c, folder, job, err);
    for (k.pp = 0; k.pp < c->pp && !rc; k.pp++)
        for (k.ep = 0; k.ep < c->ep && !rc; k.ep++)
            for (k.tp = 0; k.tp < c->tp && !rc; k.tp++) {
                tui_megatron_rank(c, k, name);
                if (k.pp || k.ep || k.tp)
                    rc = open_file(c, folder, k, name, o, job, err);
            }
    return rc;
}

/* Files of one save agree on iteration, version and mesh. */
static int same_save(struct tu_ckpt *c, const struct tui_megatron *first,
                     struct tu_err *err)
{
    int64_t iteration = -1;
    for (uint32_t f = 0; f < c->files; f++) {
        const struct tu_pnode *root = root_of(c, f),
                              *v = tu_pnode_get(root, "checkpoint_version");
        const struct tu_pnode *it = tu_pnode_get(root, "iteration");
        int version = !v ? 0 : v->kind == TU_P_REAL ? (int)v->real : (int)v->integer;
        int64_t number = it && it->kind == TU_P_INT ? it->integer : -1;
        struct tui_megatron g = *first;
        struct tu_model m = c->model;
        int rc = tui_args_read(tu_pnode_get(root, "args"), &g, &m, err);
        if (!rc && f && (version != c->version || number != iteration))
            rc = tu_fail(err, TU_EINCOMPLETE,
                         "iteration %lld, version %d here and iteration %lld, version %d "
                         "in the first file",
                         (long long)number, version, (long long)iteration, c->version);
        if (!rc && tu_pnode_get(root, "args") &&
            (g.tp != c->tp || g.pp != c->pp || g.ep != c->ep))
            rc =
                tu_fail(err, TU_EINCOMPLETE,
                        "its arguments say tp=%u pp=%u ep=%u, expected tp=%u pp=%u ep=%u",
                        g.tp, g.pp, g.ep, c->tp, c->pp, c->ep);
        if (!rc && f)
            rc = tu_model_same(&c->model, &m, err);
        if (rc) {
            tu_err_prefix(err, "%s", c->file[f].path);
            return rc;
        }
        if (!f) {
            c->version = version;
            iteration = number;
        }
    }
    return 0;
}

/* The process that saved a file, or -1. */
static int64_t saver_of(const struct tu_ckpt *c, uint32_t f)
{
    const struct tu_pnode *v =
        tu_pnode_get(tu_pnode_get(root_of(c, f), "args"), "rank");
    return v && v->kind == TU_P_INT ? v->integer : -1;
}

/* Files that several processes saved say which, each another; tensor ranks are numbered
 * fastest. One process that converts writes its own number, or an older save's, into
 * all. */
static int own_ranks(const struct tu_ckpt *c, struct tu_err *err)
{
    int64_t *saver = tu_alloc(c->files, sizeof *saver, err);
    bool many = false;
    int rc = saver ? 0 : TU_ENOMEM;
    for (uint32_t f = 0; f < c->files && !rc; f++) {
        saver[f] = saver_of(c, f);
        many |= saver[f] != saver[0];
    }
    for (uint32_t f = 0; f < c->files && many && !rc; f++) {
        int64_t rank = saver[f];
        uint32_t tp = c->file[f].at.tp, k = 0;
        while (k < f && saver[k] != rank)
            k++;
        if (rank >= 0 && rank % c->tp != tp)
            rc = tu_fail(err, TU_EINCOMPLETE,
                         "%.150s: args.rank is %lld, which is tensor-parallel rank %u, "
                         "expected rank %u",
                         c->file[f].path, (long long)rank, (unsigned)(rank % c->tp), tp);
        else if (rank >= 0 && k < f)
            rc = tu_fail(err, TU_EINCOMPLETE,
                         "%.100s: args.rank is %lld, as in %.100s: each rank has another",
                         c->file[f].path, (long long)rank, c->file[k].path);
    }
    tu_free(saver);
    return rc;
}

/* Names of the file's weights begin so. */
static void prefix_of(const struct tu_ckpt *c, uint32_t chunk, char out[32])
{
    if (c->vpp > 1)
        snprintf(out, 32, "model%u.", chunk);
    else
        snprintf(out, 32, "model.");
}

static const char *const maps[] = {"mcore-te", "mcore-local", "megatron-legacy", NULL};

/* The first file with weights of any chunk, and what their names begin with; of a part of a model
 * some may have none. */
static const struct tu_source *first_weights(const struct tu_ckpt *c, char prefix[32])
{
    for (uint32_t f = 0; f < c->files; f++)
        for (uint32_t v = 0; v < c->vpp; v++) {
            const struct tu_source *s = c->file[f].source;
            prefix_of(c, v, prefix);
            for (size_t i = 0; i < s->n; i++)
                if (!strncmp(s->tensor[i].name, prefix, strlen(prefix)))
                    return s;
        }
    prefix_of(c, 0, prefix);
    return c->file[0].source;
}

/* The map that takes most names of the first file. */
static int choose_map(struct tu_ckpt *c, const char *want, const struct tu_shard_opts *o,
                      struct tu_err *err)
{
    size_t most = 0;
    char prefix[32];
    const struct tu_source *s = first_weights(c, prefix);
    if (want) {
        const char *name = !strcmp(want, "te")       ? maps[0]
                           : !strcmp(want, "local")  ? maps[1]
                           : !strcmp(want, "legacy") ? maps[2]
                                                     : NULL;
        return name ? tui_load_map(&c->map, name, &c->model, o, err)
                    : tu_fail(err, TU_EUSAGE, "spec= is te, local or legacy");
    }
    for (const char *const *m = maps; *m; m++) {
        struct tu_map *map = NULL;
        size_t count = 0;
        int rc = tui_load_map(&map, *m, &c->model, o, err);
        if (rc)
            return rc;
        for (size_t i = 0; i < s->n; i++) {
            struct tu_named named;
            bool yes = false;
            if (!strncmp(s->tensor[i].name, prefix, strlen(prefix)))
                rc = tu_map_match(map, s->tensor[i].name + strlen(prefix), 0, 0, &named,
                                  &yes, err);
            count += !rc && yes && !(named.transform & TU_MAP_DROP);
        }
        if (count > most) {
            most = count;
            tu_map_free(c->map);
            c->map = map;
        } else {
            tu_map_free(map);
        }
    }
    return c->map ? 0
                  : tu_fail(err, TU_EINCOMPLETE, "%.150s: no weights under '%s'", s->path,
                            prefix);
}

static uint64_t argument(const struct tu_ckpt *c, const char *name)
{
    const struct tu_pnode *v = tu_pnode_get(c->args, name);
    return v && v->kind == TU_P_INT && v->integer > 0 ? (uint64_t)v->integer : 0;
}

/* Of a part of a model the files do not show all layers of a stage: the arguments say them.
 * *yes false: it is no part, or has more layers than they say. */
static int said_layers(struct tu_ckpt *c, bool *yes, struct tu_err *err)
{
    uint32_t n = c->pp * c->vpp;
    struct tu_stage *said = tu_arena_alloc(c->arena, n, sizeof *said, err);
    int rc = !said ? TU_ENOMEM : c->part ? 0 : tui_listed_is_there(c, yes, err);
    *yes = !rc && (c->part || *yes) &&
           tui_args_stages(c, argument(c, "decoder_first_pipeline_num_layers"),
                           argument(c, "decoder_last_pipeline_num_layers"), said);
    for (uint32_t i = 0; i < n && *yes; i++)
        *yes = c->stage[i].count <= said[i].count;
    if (*yes)
        c->stage = said;
    return rc;
}

/* Layers of every stage and chunk, counted in the files of tensor rank 0. */
static int count_layers(struct tu_ckpt *c, struct tu_err *err)
{
    uint32_t first = 0;
    c->stage = tu_arena_alloc(c->arena, (size_t)c->pp * c->vpp, sizeof *c->stage, err);
    if (!c->stage)
        return TU_ENOMEM;
    for (uint32_t f = 0; f < c->files; f++) {
        const struct tu_source *s = c->file[f].source;
        if (c->file[f].at.tp || c->file[f].at.ep)
            continue;
        for (uint32_t v = 0; v < c->vpp; v++) {
            struct tu_stage *stage = &c->stage[c->file[f].at.pp + v * c->pp];
            char prefix[32];
            prefix_of(c, v, prefix);
            for (size_t i = 0; i < s->n; i++) {
                struct tu_named named;
                bool yes = false;
                if (strncmp(s->tensor[i].name, prefix, strlen(prefix)))
                    continue;
                int rc = tu_map_match(c->map, s->tensor[i].name + strlen(prefix), 0, 0,
                                      &named, &yes, err);
                if (rc)
                    return rc;
                if (yes && named.layer >= (int64_t)stage->count && named.layer < 1 << 20)
                    stage->count = (uint32_t)named.layer + 1;
            }
        }
    }
    for (uint32_t i = 0; i < c->pp * c->vpp; i++) {
        c->stage[i].first = first;
        first += c->stage[i].count;
    }
    bool said = false;
    int rc = c->model.layers && first != c->model.layers ? said_layers(c, &said, err) : 0;
    if (!rc && c->model.layers && first != c->model.layers && !said)
        return tu_fail(err, TU_EINCOMPLETE,
                       "%.150s: %u layers in all stages, its arguments say %llu", c->root,
                       first, (unsigned long long)c->model.layers);
    return rc;
}

/* The true vocabulary: from the option, from hf/config.json, from the arguments of newer
 * saves, or left padded. */
static int know_vocab(struct tu_ckpt *c, const struct tui_megatron *g,
                      const struct tu_shard_opts *o, const struct tu_job *job,
                      struct tu_err *err)
{
    const struct tu_side *config = tui_side(c, "config.json");
    struct tu_model hf = {.layers = 0};
    int rc = config ? tu_model_from_hf(&hf, config->text, config->n, err) : 0;
    if (!rc && config)
        rc = tu_model_same(&c->model, &hf, err);
    if (rc) {
        tu_err_prefix(err, "%s/hf/config.json", c->root);
        return rc;
    }
    if (config) {
        bool tied = c->model.tied;
        if (!c->args)
            tied = hf.tied;
        c->model = hf;
        c->model.tied = tied;
    }
    if (!c->model.vocab)
        c->model.vocab = g->vocab;
    if (o->vocab)
        c->model.vocab = o->vocab;
    if (o->untied)
        c->model.tied = false;
    if (!c->model.vocab) {
        c->model.vocab = g->padded_vocab;
        tu_job_warn(job,
                    "%s: the true vocabulary size is not known: %llu padded rows are "
                    "kept (--vocab N "
                    "removes the padding)",
                    c->root, (unsigned long long)g->padded_vocab);
    }
    return 0;
}

/* States are there in an order that is not stored: buckets of the distributed optimizer in a
 * file beside, or lists by number. Source: Megatron-LM core/optimizer/distrib_optimizer.py,
 * optimizer.py. */
static int warn_of_states(const struct tu_ckpt *c, const struct tu_job *job,
                          struct tu_err *err)
{
    const struct tu_pnode *optimizer = tu_pnode_get(root_of(c, 0), "optimizer");
    const char *path = c->file[0].path, *slash = strrchr(path, '/');
    char *beside = tu_arena_printf(c->arena, err, "%.*s/distrib_optim.pt",
                                   (int)(slash ? slash - path : 0), path);
    if (!beside)
        return TU_ENOMEM;
    bool file = tui_is_file(beside);
    if (file || (optimizer && optimizer->kind != TU_P_NONE))
        tu_job_warn(job,
                    "%s: the states of the optimizer (%s) do not say whose they are and are "
                    "left behind; saved as torch_dist (fully_reshardable) they do",
                    c->root, file ? "distrib_optim.pt" : "optimizer");
    return 0;
}

static int add_rank(struct tu_ckpt *c, uint32_t f, struct tu_err *err)
{
    int rc = 0;
    for (uint32_t v = 0; v < c->vpp && !rc; v++) {
        char prefix[32];
        struct tui_naming n = {.map = c->map, .prefix = prefix, .at = c->file[f].at};
        prefix_of(c, v, prefix);
        n.at.vp = v;
        n.layer_base = c->stage[n.at.pp + v * c->pp].first;
        if (c->ep > 1 && c->model.experts)
            n.expert_base = (int64_t)(n.at.ep * (c->model.experts / c->ep));
        rc = tui_add_pieces(c, f, &n, err);
    }
    return rc;
}

static int megatron_open(struct tu_ckpt *c, const struct tu_spec *spec,
                         const struct tu_shard_opts *o, const struct tu_job *job,
                         struct tu_err *err)
{
    struct tui_megatron g = {1, 1, 1, 1, 0, 0};
    char *folder = NULL;
    int rc = tui_megatron_folder(c, tu_spec_get(spec, "iteration"), &folder, err);
    if (!rc)
        rc = open_first(c, folder, spec, o, job, &g, err);
    if (!rc)
        rc = open_ranks(c, folder, o, job, err);
    if (!rc)
        rc = same_save(c, &g, err);
    if (!rc)
        rc = own_ranks(c, err);
    char *hf = rc ? NULL : tui_join(c->arena, c->root, "hf", err);
    if (!rc)
        rc = hf ? tui_sides_from(c, hf, err) : TU_ENOMEM;
    if (!rc)
        rc = know_vocab(c, &g, o, job, err);
    if (!rc)
        rc = choose_map(c, tu_spec_get(spec, "spec"), o, err);
    if (!rc)
        rc = count_layers(c, err);
    if (!rc)
        rc = tui_set_canonical(c, o, err);
    if (!rc && !o->weights_only)
        rc = warn_of_states(c, job, err);
    for (uint32_t f = 0; f < c->files && !rc; f++)
        rc = add_rank(c, f, err);
    if (!rc)
        rc = tui_check_ranks(c, err);
    return rc ? rc : tui_check_copies(c, job, err);
}

static const struct tu_layout_key keys[] = {
    {"tp", "tensor-parallel size"},
    {"pp", "pipeline stages"},
    {"vpp", "chunks per stage (interleaved pipeline)"},
    {"ep", "expert-parallel size"},
    {"version", "checkpoint_version to write: 0, 1, 2 or 3 (default)"},
    {"layers", "layers of every stage and chunk, joined by '+'"},
    {"spec", "names: te (default), local or legacy"},
    {"iteration", "iteration to read, or to write (default: the source's, else release)"},
    {"pad", "make_vocab_size_divisible_by (default 128)"},
    {NULL, NULL},
};

const struct tu_layout tui_layout_megatron = {
    .name = "megatron",
    .help = "Megatron-LM folder of mp_rank_* files with tensor, pipeline and expert "
            "parallelism",
    .key = keys,
    .maps = maps,
    .detect = megatron_detect,
    .open = megatron_open,
    .plan = tui_megatron_plan,
    .side_folder = "hf",
    .extra = tui_megatron_extra,
};
