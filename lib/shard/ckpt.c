/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt.c: a checkpoint as an object: made, opened in a layout, checked, closed. */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt.h"
#include "trust.h"

const struct tu_layout *const tu_layouts[] = {
    &tui_layout_hf,
    &tui_layout_safetensors,
    &tui_layout_torch,
    &tui_layout_tns,
    &tui_layout_megatron,
    &tui_layout_meta,
    &tui_layout_zero,
    &tui_layout_universal,
    &tui_layout_torch_dist,
    &tui_layout_dcp,
    &tui_layout_dcp_hf,
    &tui_layout_peft,
    &tui_layout_files,
    NULL,
};

const struct tu_layout *tu_layout_find(const char *name)
{
    for (const struct tu_layout *const *l = tu_layouts; *l; l++)
        if (!strcmp((*l)->name, name))
            return *l;
    return NULL;
}

bool tui_is_dir(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

bool tui_is_file(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

bool tui_has_suffix(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && !strcmp(path + n - m, suffix);
}

int tui_is_a(const char *path, const char *format)
{
    const struct tu_format *f = tu_format_find(format);
    unsigned char head[4096];
    if (!tui_is_file(path))
        return 0;
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(head, 1, sizeof head, file) : 0;
    bool yes = file && !ferror(file) && f->sniff(path, head, n);
    if (file)
        fclose(file);
    return yes ? 80 : tu_format_of_path(path) == f ? 20 : 0;
}

char *tui_join(struct tu_arena *a, const char *folder, const char *name,
               struct tu_err *err)
{
    if (!*name)
        return tu_arena_text(a, folder, strlen(folder), err);
    return tu_arena_printf(a, err, "%s%s%s", folder, *folder ? "/" : "", name);
}

int tui_ckpt_new(struct tu_ckpt **out, const char *root, struct tu_err *err)
{
    struct tu_ckpt *c = tu_calloc(1, sizeof *c, err);
    if (!c || !(c->arena = tu_arena_new(err)) || !(c->names = tu_names_new(err)) ||
        !(c->root = tu_strdup(root, err)) || tui_listed_new(c, err)) {
        tu_ckpt_close(c);
        return TU_ENOMEM;
    }
    c->tp = c->pp = c->vpp = c->ep = 1;
    c->version = 2;
    c->iteration = -1;
    *out = c;
    return 0;
}

void tu_ckpt_close(struct tu_ckpt *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->files; i++) {
        tu_source_close(c->file[i].source);
        tui_trust_free(c->file[i].trust);
        tu_free(c->file[i].list);
    }
    for (size_t i = 0; i < c->atoms; i++)
        tu_free(c->atom[i].piece);
    tu_free(c->atom);
    if (!c->from) {
        tu_free(c->role);
        tu_map_free(c->canonical);
    }
    tu_map_free(c->map);
    tu_free(c->file);
    tu_free(c->piece);
    tu_free(c->blank);
    tu_free(c->side);
    tu_names_free(c->names);
    tui_renames_free(c->renames);
    tui_listed_free(c->listed);
    tu_arena_free(c->arena);
    tu_free(c->root);
    tu_free(c);
}

static int add_file(struct tu_ckpt *c, struct tu_ckpt_file f, const char *path,
                    uint32_t *number, struct tu_err *err)
{
    int rc = TU_GROW(&c->file, &c->file_cap, c->files, err);
    if (rc)
        return rc;
    if (!(f.path = tu_arena_text(c->arena, path, strlen(path), err)))
        return TU_ENOMEM;
    *number = (uint32_t)c->files;
    c->file[c->files++] = f;
    return 0;
}

int tui_add_source(struct tu_ckpt *c, const char *path, struct tu_source *s,
                   struct tu_coord at, uint32_t *number, struct tu_err *err)
{
    struct tu_ckpt_file f = {.format = s->format, .source = s, .at = at};
    int rc = tui_trust_new(&f.trust, s, err);
    if (!rc)
        rc = add_file(c, f, path, number, err);
    if (rc) {
        tui_trust_free(f.trust);
        tu_source_close(s);
    }
    return rc;
}

int tui_add_target(struct tu_ckpt *c, const char *path, const struct tu_format *format,
                   struct tu_coord at, uint32_t *number, struct tu_err *err)
{
    return add_file(c, (struct tu_ckpt_file){.format = format, .at = at}, path, number,
                    err);
}

int tui_add_side(struct tu_ckpt *c, const char *name, const char *text, size_t n,
                 struct tu_err *err)
{
    if (tui_side(c, name))
        return 0;
    int rc = TU_GROW(&c->side, &c->side_cap, c->sides, err);
    if (rc)
        return rc;
    struct tu_side s = {tu_arena_text(c->arena, name, strlen(name), err),
                        tu_arena_text(c->arena, text, n, err), n};
    if (!s.name || !s.text)
        return TU_ENOMEM;
    c->side[c->sides++] = s;
    return 0;
}

const struct tu_side *tui_side(const struct tu_ckpt *c, const char *name)
{
    for (size_t i = 0; i < c->sides; i++)
        if (!strcmp(c->side[i].name, name))
            return &c->side[i];
    return NULL;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int tui_sides_from(struct tu_ckpt *c, const char *folder, struct tu_err *err)
{
    struct dirent **list = NULL;
    int n = scandir(folder, &list, NULL, by_name), rc = 0;
    if (n < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : tu_fail_errno(err, "%s", folder);
    for (int i = 0; i < n; i++) {
        char *path = rc ? NULL : tui_join(c->arena, folder, list[i]->d_name, err),
             *text = NULL;
        size_t len = 0;
        if (!rc && !path)
            rc = TU_ENOMEM;
        if (!rc && tu_hf_travels(list[i]->d_name) && !tui_is_dir(path)) {
            rc = tui_is_file(path) ? tu_file_read(path, (size_t)64 << 20, &text, &len, err)
                                   : tu_fail(err, TU_EINCOMPLETE, "%s: no regular file", path);
            if (!rc)
                rc = tui_add_side(c, list[i]->d_name, text, len, err);
            tu_free(text);
        }
        free(list[i]);
    }
    free(list);
    return rc;
}

static int detect(const struct tu_layout **best, const char *path, struct tu_err *err)
{
    int most = 0;
    for (const struct tu_layout *const *l = tu_layouts; *l; l++) {
        int sure = (*l)->detect(path);
        if (sure < 0)
            return tu_fail(err, sure, "%.150s: cannot be read to see which layout it has", path);
        if (sure > most) {
            most = sure;
            *best = *l;
        }
    }
    return most ? 0
                : tu_fail(err, TU_EMAGIC, "%.150s: no layout is recognised here (name one with "
                          "--from)", path);
}

/* A spec checked against the layout's keys. */
static int spec_of(struct tu_spec *out, const struct tu_layout **layout, const char *text,
                   struct tu_err *err)
{
    const char *known[32];
    size_t n = 0;
    int rc = tu_spec_parse(out, text, err);
    if (rc)
        return rc;
    if (!(*layout = tu_layout_find(out->name)))
        rc = tu_fail(err, TU_EUSAGE, "unknown layout '%.40s' (try --list=layouts)",
                     out->name);
    for (const struct tu_layout_key *k = rc ? NULL : (*layout)->key;
         k && k->name && n < 31; k++)
        known[n++] = k->name;
    known[n] = NULL;
    if (!rc)
        rc = tu_spec_check(out, known, err);
    if (rc)
        tu_spec_release(out);
    return rc;
}

static bool has_role(const struct tu_ckpt *c, const char *name)
{
    return tu_names_get(c->names, name) != TU_NAMES_NONE;
}

/* chosen: some tensors may be left out. */
static int check_layers(const struct tu_ckpt *c, bool chosen, struct tu_err *err)
{
    if (!c->canonical || !c->model.layers)
        return 0;
    unsigned char *seen = tu_calloc(c->model.layers, 1, err);
    int rc = seen ? 0 : TU_ENOMEM;
    bool missing = false;
    for (size_t i = 0; i < c->roles && !rc; i++) {
        const struct tu_role *r = &c->role[i];
        if (r->layer >= (int64_t)c->model.layers)
            rc = tu_fail(err, TU_EINCOMPLETE,
                         "%.100s: layer %lld in a model of %llu layers", c->root,
                         (long long)r->layer, (unsigned long long)c->model.layers);
        else if (r->layer >= 0)
            seen[r->layer] = 1;
    }
    for (uint64_t l = 0; l < c->model.layers && !chosen && !rc; l++)
        missing |= !seen[l];
    if (missing)
        rc = tui_listed_layers(c, seen, err);
    for (uint64_t l = 0; l < c->model.layers && missing && !rc; l++)
        if (!seen[l])
            rc = tu_fail(err, TU_EINCOMPLETE, "%.100s: layer %llu of %llu is missing",
                         c->root, (unsigned long long)l,
                         (unsigned long long)c->model.layers);
    tu_free(seen);
    return rc;
}

/* While the family's names are known: roles alone have none. */
static int check_configuration(const struct tu_ckpt *c, bool chosen, struct tu_err *err)
{
    int rc = check_layers(c, chosen, err);
    return rc ? rc : tui_check_sizes(c, err);
}

/* The user's configuration, before any that is found. */
static int take_config(struct tu_ckpt *c, const char *path, struct tu_err *err)
{
    char *text = NULL;
    size_t n;
    if (!path)
        return 0;
    int rc = tu_file_read(path, (size_t)16 << 20, &text, &n, err);
    if (!rc)
        rc = tui_add_side(c, "config.json", text, n, err);
    tu_free(text);
    return rc;
}

/* Of what the message speaks, unless it says so: what knows of tensors and counts alone does not
 * know whose they are. */
static void about(const char *subject, struct tu_err *err)
{
    if (err && !strstr(err->msg, subject))
        tu_err_prefix(err, "%.150s", subject);
}

int tu_ckpt_open(struct tu_ckpt **out, const char *path, const char *text,
                 const struct tu_shard_opts *o, const struct tu_job *job,
                 struct tu_err *err)
{
    static const struct tu_shard_opts none;
    struct tu_spec spec = {0};
    struct tu_ckpt *c = NULL;
    const struct tu_layout *layout = NULL;
    struct stat st;
    bool chosen = false;
    int rc = 0;
    if (strcmp(path, "-") && stat(path, &st))
        return tu_fail_errno(err, "%s", path);
    if (text)
        rc = spec_of(&spec, &layout, text, err);
    else
        rc = detect(&layout, path, err);
    if (!rc)
        rc = tui_ckpt_new(&c, path, err);
    if (!rc)
        rc = tui_renames_new(c, o ? o : &none, err);
    if (!rc && o)
        rc = take_config(c, o->config_file, err);
    if (!rc) {
        c->layout = layout;
        c->refused = o ? o->refused : NULL;
        chosen = c->part = o && (o->include || o->exclude);
        rc = layout->open(c, &spec, o ? o : &none, job, err);
    }
    if (!rc && !c->model.layers) /* no configuration: the tensors tell */
        c->model.tied = !has_role(c, "head.weight");
    if (!rc)
        rc = tui_check_complete(c, err);
    if (!rc)
        rc = check_configuration(c, chosen, err);
    if (!rc && o && o->roles) {
        tu_map_free(c->canonical);
        c->canonical = NULL;
    }
    if (!rc)
        rc = tui_make_atoms(c, o ? o : &none, err);
    if (!rc)
        rc = tu_ckpt_check(c, err);
    if (!rc)
        rc = tui_warn_prefix(c, job, err);
    tu_spec_release(&spec);
    if (rc) {
        about(path, err);
        tu_ckpt_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

int tu_ckpt_plan(struct tu_ckpt **out, const struct tu_ckpt *from, const char *root,
                 const char *text, const struct tu_shard_opts *o, struct tu_err *err)
{
    struct tu_spec spec = {0};
    struct tu_ckpt *c = NULL;
    const struct tu_layout *layout;
    int rc = spec_of(&spec, &layout, text, err);
    if (rc)
        return rc;
    rc = tui_ckpt_new(&c, root, err);
    if (!rc && o && o->dtype != TU_DTYPE_NONE)
        rc = tui_need_plain(from, "a cast changes weights without their scales", err);
    if (!rc && !layout->plan)
        rc = tu_fail(err, TU_EUSAGE, "layout %s is only read", layout->name);
    if (!rc) {
        c->layout = layout;
        c->from = from;
        c->refused = o ? o->refused : NULL;
        c->model = from->model;
        c->role = from->role;
        c->roles = from->roles;
        c->canonical = from->canonical;
        c->dtype = o ? o->dtype : TU_DTYPE_NONE;
        c->iteration = from->iteration;
        c->args = from->args;
        c->optim = from->optim;
        c->optim_n = from->optim_n;
        c->part = from->part;
        for (size_t i = 0; i < from->sides && !rc; i++)
            rc = tui_add_side(c, from->side[i].name, from->side[i].text, from->side[i].n,
                              err);
    }
    if (!rc)
        rc = tui_config_dtype(c, err);
    if (!rc)
        rc = layout->plan(c, &spec, o, err);
    if (!rc)
        rc = tui_adopt_atoms(c, err);
    tu_spec_release(&spec);
    if (rc) {
        about(text, err);
        tu_ckpt_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

/* Elements of atom a that the pieces used for reading hold. */
static int covered(const struct tu_ckpt *c, uint32_t a, uint64_t *n, struct tu_err *err)
{
    struct tu_spans s = {0};
    int rc = 0;
    for (size_t i = 0; i < c->atom[a].n && !rc; i++)
        if (!c->piece[c->atom[a].piece[i]].replica)
            rc = tu_ckpt_spans(c, c->atom[a].piece[i], a, &s, err);
    *n = 0;
    for (size_t i = 0; i < s.n; i++)
        *n += s.span[i].rows * s.span[i].cols;
    tui_spans_release(&s);
    return rc;
}

int tu_ckpt_check(const struct tu_ckpt *c, struct tu_err *err)
{
    int rc = check_configuration(c, c->part, err);
    for (uint32_t a = 0; a < c->atoms && !rc; a++) {
        const struct tu_tensor *t = &c->atom[a].tensor;
        uint64_t rows, cols, want, have = 0;
        rc = covered(c, a, &have, err);
        tui_matrix(t, &rows, &cols);
        want = rows * cols;
        if (!rc && have != want)
            rc =
                tu_fail(err, TU_EINCOMPLETE,
                        "%.80s: '%.80s': %llu of %llu elements are in its files", c->root,
                        t->name, (unsigned long long)have, (unsigned long long)want);
    }
    return rc;
}
