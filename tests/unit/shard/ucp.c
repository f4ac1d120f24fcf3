/* SPDX-License-Identifier: Apache-2.0 */
/* ucp.c: universal_checkpoint_info, right and wrong: how each kind of rule cuts a tensor
 * that ranks have, and a whole one that ranks are to have. What is expected follows
 * DeepSpeed's merge_tp_slices (deepspeed/checkpoint/ds_to_universal.py), for rules that
 * it would obey. */
#include <stdlib.h>
#include "../tap.h"
#include "shard/deepspeed.h"

static struct tu_ckpt ckpt;

/* Rules of a text where ' stands for ". */
static int rules_of(struct tui_ucp **out, const char *text, struct tu_err *err)
{
    char json[1024];
    size_t i;
    json_t *o = NULL;
    *out = NULL;
    for (i = 0; text[i] && i + 1 < sizeof json; i++)
        json[i] = text[i] == '\'' ? '"' : text[i];
    json[i] = 0;
    if (tu_json_parse(&o, json, i, NULL, NULL))
        abort();
    struct tu_pnode *node = tui_pnode_of(ckpt.arena, o, NULL);
    json_decref(o);
    if (!node)
        abort();
    return tui_ucp_new(out, node, err);
}

static const struct {
    const char *info;
    int code;
    const char *words;
} infos[] = {
    {"{'affine_map':{}}", TU_EUNSUP, "affine_map"},
    {"{'parameter_with_row_parallelism_patterns':[3]}", TU_EFORMAT,
     "parameter_with_row_parallelism_patterns: a pattern is no text"},
    {"{'parameter_with_sub_params':[{'patterns':[null]}]}", TU_EFORMAT,
     "parameter_with_sub_params: a pattern is no text"},
    {"{'tp_replicated_parameter_patterns':['(']}", TU_EUSAGE, ""},
    {"{'tp_replicated_parameter_patterns':'w'}", 0, ""},
    {"{'parameter_with_sub_params':[{'patterns':'w'},3]}", 0, ""},
    {"{}", 0, ""},
};

#define ROW "{'parameter_with_row_parallelism_patterns':['w']}"
#define SUB(dim, shape)                                                                  \
    "{'parameter_with_sub_params':[{'patterns':['w'],'partition_dim':" dim ",'shape':"   \
    shape "}]"
#define VOCAB "{'vocabulary_parameter_patterns':['w'],'original_vocab_size':7}"

/* Two ranks' tensors [4, 6] each, or a whole one of [8, 6]. */
static const struct {
    const char *info;
    bool target; /* of a whole one */
    unsigned rank;
    int code;
    const char *words;
    enum tui_cut_kind kind;
    unsigned axis;
    uint32_t parts;
    uint64_t width[8];
} cuts[] = {
    {"{}", false, 2, 0, "", TUI_CUT_AXIS, 0, 1, {4, 4}},
    {"{}", false, 0, 0, "", TUI_CUT_WHOLE, 0, 0, {0}},
    {ROW, false, 2, 0, "", TUI_CUT_AXIS, 1, 1, {6, 6}},
    {ROW, false, 1, 0, "", TUI_CUT_AXIS, 0, 1, {4, 6}},
    {"{'tp_replicated_parameter_patterns':['w']}",
     false,
     2,
     0,
     "",
     TUI_CUT_WHOLE,
     0,
     0,
     {0}},
    {"{'parameter_to_average_patterns':['w']}",
     false,
     2,
     0,
     "",
     TUI_CUT_AVERAGE,
     0,
     0,
     {0}},
    {"{'parameter_with_2_sub_params_cat_dim_0':['w']}",
     false,
     2,
     0,
     "",
     TUI_CUT_AXIS,
     0,
     2,
     {2, 2, 2, 2}},
    {"{'parameter_with_row_parallelism_patterns':['w','.*']}",
     false,
     2,
     TU_EFORMAT,
     "both 'w' and '.*' take 'w'",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[2,6]") "}", false, 2, 0, "", TUI_CUT_AXIS, 0, 2, {2, 2, 2, 2}},
    {SUB("0", "[3,6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "'w': 4 elements are no 3 parts",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[6,2],6]") "}", false, 2, 0, "", TUI_CUT_AXIS, 0, 2, {3, 3, 1, 1}},
    {SUB("0", "[[6,1],6]") "}", false, 2, TU_EINCOMPLETE, "are not known", 0, 0, 0, {0}},
    {SUB("0", "[[6,4],6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "more than a rank has",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[4,2],6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "do not add up to what a rank",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[['a',2],6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "are not known",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[-2,10],6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "are not known",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[6,2],6]") ",'universal_checkpoint_version':0.4}",
     false,
     2,
     TU_EINCOMPLETE,
     "are not known",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[6,2],6]") ",'sub_param_shard_widths':{'w':[[1,3],[3,1]]}}",
     false,
     2,
     0,
     "",
     TUI_CUT_AXIS,
     0,
     2,
     {1, 3, 3, 1}},
    {SUB("0", "[[6,2],6]") ",'sub_param_shard_widths':{'w':[[1,3],[3]]}}",
     false,
     2,
     TU_EINCOMPLETE,
     "are not known",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[6,2],6]") ",'sub_param_shard_widths':{'w':[[1,3]]}}",
     false,
     2,
     TU_EINCOMPLETE,
     "are not known",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[6,2],6]") ",'sub_param_shard_widths':{'w':[['1',3],[3,1]]}}",
     false,
     2,
     TU_EINCOMPLETE,
     "are not known",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[6,2,1],6]") ",'sub_param_shard_widths':{'w':[[9223372036854775807,4],["
                             "9223372036854775807,0],[6,0]]}}",
     false,
     2,
     TU_EINCOMPLETE,
     "more than a rank has",
     0,
     0,
     0,
     {0}},
    {SUB("2", "[6,6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "shape or partition_dim",
     0,
     0,
     0,
     {0}},
    {SUB("-1", "[6,6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "shape or partition_dim",
     0,
     0,
     0,
     {0}},
    {SUB("'0'", "[6,6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "shape or partition_dim",
     0,
     0,
     0,
     {0}},
    {SUB("1", "[6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "shape or partition_dim",
     0,
     0,
     0,
     {0}},
    {SUB("0", "6") "}", false, 2, TU_EINCOMPLETE, "shape or partition_dim", 0, 0, 0, {0}},
    {"{'parameter_with_sub_params':[{'patterns':['w'],'shape':[2]}]}",
     false,
     2,
     TU_EINCOMPLETE,
     "shape or partition_dim",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[],6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "no sizes at partition_dim",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[0,6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "no sizes at partition_dim",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[17,6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "no sizes at partition_dim",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],6]") "}",
     false,
     2,
     TU_EINCOMPLETE,
     "no sizes at partition_dim",
     0,
     0,
     0,
     {0}},
    {VOCAB, false, 2, 0, "", TUI_CUT_AXIS, 0, 1, {4, 4}},
    /* A whole tensor for two ranks. */
    {"{}", true, 2, 0, "", TUI_CUT_AXIS, 0, 1, {4, 4}},
    {"{}", true, 0, 0, "", TUI_CUT_WHOLE, 0, 0, {0}},
    {ROW, true, 2, 0, "", TUI_CUT_AXIS, 1, 1, {3, 3}},
    {"{'parameter_to_average_patterns':['w']}", true, 2, 0, "", TUI_CUT_WHOLE, 0, 0, {0}},
    {"{'parameter_with_2_sub_params_cat_dim_0':['w']}",
     true,
     2,
     0,
     "",
     TUI_CUT_AXIS,
     0,
     2,
     {2, 2, 2, 2}},
    {SUB("0", "[[6,2],6]") "}", true, 2, 0, "", TUI_CUT_AXIS, 0, 2, {3, 3, 1, 1}},
    {SUB("1", "[8,[4,2]]") "}", true, 2, 0, "", TUI_CUT_AXIS, 1, 2, {2, 2, 1, 1}},
    {SUB("0", "[4,6]") "}", true, 2, 0, "", TUI_CUT_AXIS, 0, 4, {1, 1, 1, 1, 1, 1, 1, 1}},
    {SUB("0", "[3,6]") "}",
     true,
     2,
     TU_EINCOMPLETE,
     "its parts are not equal",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[5,3],6]") "}",
     true,
     2,
     TU_EUSAGE,
     "a part of 5 does not divide by tp=2",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[4,2],6]") "}",
     true,
     2,
     TU_EINCOMPLETE,
     "do not add up to the tensor's",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[-2,10],6]") "}",
     true,
     2,
     TU_EINCOMPLETE,
     "not those of parts",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[[10,-2],6]") "}",
     true,
     2,
     TU_EINCOMPLETE,
     "not those of parts",
     0,
     0,
     0,
     {0}},
    {SUB("0", "[['8'],6]") "}",
     true,
     2,
     TU_EINCOMPLETE,
     "not those of parts",
     0,
     0,
     0,
     {0}},
    {SUB("2", "[8,6]") "}",
     true,
     2,
     TU_EINCOMPLETE,
     "partition_dim is past its rank",
     0,
     0,
     0,
     {0}},
    {SUB("-1", "[8,6]") "}",
     true,
     2,
     TU_EINCOMPLETE,
     "partition_dim is past its rank",
     0,
     0,
     0,
     {0}},
    {SUB("4294967296", "[8,6]") "}",
     true,
     2,
     TU_EINCOMPLETE,
     "partition_dim is past its rank",
     0,
     0,
     0,
     {0}},
    {"{'vocabulary_parameter_patterns':['w','.']}",
     true,
     2,
     TU_EFORMAT,
     "both 'w' and '.'",
     0,
     0,
     0,
     {0}},
    {VOCAB, true, 2, 0, "", TUI_CUT_AXIS, 0, 1, {4, 4}},
};

static void cut(size_t i)
{
    static const uint64_t ranks[] = {4, 6, 4, 6}, whole[] = {8, 6};
    struct tu_err err = {0};
    struct tui_ucp *u;
    struct tui_cut got;
    if (rules_of(&u, cuts[i].info, &err))
        abort();
    int rc = cuts[i].target
                 ? tui_ucp_target(&ckpt, u, "w", whole, cuts[i].rank, &got, &err)
                 : tui_ucp_cut(&ckpt, u, "w", ranks, cuts[i].rank, &got, &err);
    bool well = rc == cuts[i].code && (!rc || strstr(err.msg, cuts[i].words));
    if (!rc)
        well = well && got.kind == cuts[i].kind && got.axis == cuts[i].axis &&
               got.parts == cuts[i].parts;
    for (uint32_t k = 0; well && !rc && k < 2 * got.parts; k++)
        well = got.width[k] == cuts[i].width[k];
    ok(well, "%zu: %s, %s: %s", i, cuts[i].target ? "whole" : "cut", cuts[i].info,
       rc ? err.msg : "cut");
    tui_ucp_free(u);
}

int main(void)
{
    struct tu_err err = {0};
    struct tui_ucp *u;
    struct tui_cut got;
    static const uint64_t dim[] = {8, 6, 8, 6};
    ckpt.tp = 2;
    if (!(ckpt.arena = tu_arena_new(NULL)))
        return 99;
    for (size_t i = 0; i < sizeof infos / sizeof *infos; i++) {
        int rc = rules_of(&u, infos[i].info, &err);
        ok(rc == infos[i].code && (!rc || strstr(err.msg, infos[i].words)), "%s: %s",
           infos[i].info, rc ? err.msg : "rules");
        tui_ucp_free(u);
    }
    ok(!tui_ucp_new(&u, NULL, &err) && !u, "no info is no rules");
    ok(!rules_of(&u, "null", &err) && !u, "None is no rules");
    eq_int(tui_ucp_cut(&ckpt, NULL, "w", dim, 2, &got, &err), TU_EUSAGE, "cut: %s",
           err.msg);
    ok(strstr(err.msg, "how 2 tensor-parallel ranks cut 'w'"), "%s", err.msg);
    eq_int(tui_ucp_target(&ckpt, NULL, "w", dim, 2, &got, &err), TU_EUSAGE, "whole: %s",
           err.msg);
    ok(strstr(err.msg, "tp=2: how 'w' is cut is not known"), "%s", err.msg);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        cut(i);
    if (rules_of(&u, SUB("0", "[[6,2],6]") "}", &err))
        abort();
    ok(tui_ucp_sub(u, "w") && !tui_ucp_sub(u, "other") && !tui_ucp_sub(NULL, "w"),
       "the entry that takes a name");
    tui_ucp_free(u);
    tu_arena_free(ckpt.arena);
    return tap_done();
}
