/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_value.c: what the pickle machine knows of values: honest globals, long integers,
 * and the few calls whose result is plain data. */
#include "pickle.h"

/* Globals ---------------------------------------------------------------------------- */

/* A star ends a prefix. torch's storages and dtypes have a table of their own. */
static const char *const known_globals[] = {
    "__builtin__ bytearray",
    "__builtin__ bytes",
    "__builtin__ complex",
    "__builtin__ dict",
    "__builtin__ frozenset",
    "__builtin__ getattr",
    "__builtin__ int",
    "__builtin__ list",
    "__builtin__ set",
    "_codecs encode",
    "_io BytesIO",
    "argparse Namespace",
    "builtins bytearray",
    "builtins bytes",
    "builtins complex",
    "builtins dict",
    "builtins frozenset",
    "builtins getattr",
    "builtins int",
    "builtins list",
    "builtins set",
    "collections Counter",
    "collections OrderedDict",
    "collections defaultdict",
    "deepspeed.checkpoint.universal_checkpoint SubparamShape",
    "deepspeed.runtime.fp16.loss_scaler DynamicLossScaler",
    "deepspeed.runtime.fp16.loss_scaler LossScaler",
    "deepspeed.runtime.zero.config ZeroStageEnum",
    "deepspeed.utils.tensor_fragment *",
    "megatron.core.enums ModelType",
    "megatron.core.optimizer*",
    "megatron.core.rerun_state_machine Rerun*",
    "megatron.core.transformer.enums *",
    "numpy dtype",
    "numpy ndarray",
    "numpy._core.multiarray _reconstruct",
    "numpy._core.multiarray scalar",
    "numpy.core.multiarray _reconstruct",
    "numpy.core.multiarray scalar",
    "pathlib PosixPath",
    "signal Signals",
    "torch Size",
    "torch Tensor",
    "torch device",
    "torch._C Generator",
    "torch._tensor _rebuild_from_type_v2",
    "torch._utils _rebuild_*",
    "torch.distributed._tensor*",
    "torch.distributed.checkpoint*",
    "torch.distributed.device_mesh *",
    "torch.distributed.tensor*",
    "torch.nn.parameter Parameter",
    "torch.serialization _get_layout",
    "torch.storage TypedStorage",
    "torch.storage UntypedStorage",
    "types SimpleNamespace",
};

bool tui_pickle_known(const char *name)
{
    if (tui_torch_named(name) || tui_torch_storage(name))
        return true;
    for (size_t i = 0; i < sizeof known_globals / sizeof *known_globals; i++) {
        const char *row = known_globals[i];
        size_t n = strlen(row);
        if (row[n - 1] == '*' ? !strncmp(name, row, n - 1) : !strcmp(name, row))
            return true;
    }
    return false;
}

/* Long integers ---------------------------------------------------------------------- */

#define NINE 1000000000u /* digits that are taken from a number at a time */

/* Magnitude of a two's complement number as 32-bit limbs, lowest first. */
static void magnitude(uint32_t *limb, size_t limbs, const unsigned char *p, size_t n)
{
    bool negative = p[n - 1] & 0x80;
    uint32_t carry = negative;
    for (size_t i = 0; i < 4 * limbs; i++) {
        uint32_t byte = i < n ? p[i] : negative ? 0xFF : 0;
        uint32_t v = (negative ? byte ^ 0xFF : byte) + carry;
        limb[i / 4] |= (v & 0xFF) << (8 * (i % 4));
        carry = v >> 8;
    }
}

int tui_pickle_decimal(struct tu_pnode *node, struct tu_arena *a, const unsigned char *p,
                       size_t n, struct tu_err *err)
{
    size_t limbs = n / 4 + 1, digits = 0, room = n * 5 / 2 + 12;
    uint32_t *limb = tu_calloc(limbs, sizeof *limb, err);
    char *text = limb ? tu_alloc(room, 1, err) : NULL;
    if (text) {
        magnitude(limb, limbs, p, n);
        for (size_t high = limbs; high;) { /* from the last digit on */
            uint64_t rest = 0;
            for (size_t i = high; i-- > 0;) {
                rest = rest << 32 | limb[i];
                limb[i] = (uint32_t)(rest / NINE);
                rest %= NINE;
            }
            while (high && !limb[high - 1])
                high--;
            for (int k = 0; k < 9 && (high || rest || !digits); k++, rest /= 10)
                text[room - ++digits] = (char)('0' + rest % 10);
        }
        if (p[n - 1] & 0x80)
            text[room - ++digits] = '-';
        node->text = tu_arena_text(a, text + room - digits, digits, err);
        node->n = digits;
    }
    tu_free(text);
    tu_free(limb);
    return node->text ? 0 : TU_ENOMEM;
}

/* Calls ------------------------------------------------------------------------------ */

/* Text of code points below 256 as bytes: what _codecs.encode(text, 'latin1') gives. */
static int latin1(struct tu_pnode **out, struct tu_arena *a, const struct tu_pnode *text,
                  struct tu_err *err)
{
    const unsigned char *s = (const unsigned char *)text->text;
    size_t n = 0;
    if (tu_utf8_check(text->text, text->n) != text->n)
        return 0;
    struct tu_pnode *node = tu_pnode_new(a, TU_P_BYTES, 0, err);
    char *bytes = node ? tu_arena_alloc(a, text->n + 1, 1, err) : NULL;
    if (!bytes)
        return TU_ENOMEM;
    for (size_t i = 0; i < text->n; i++) {
        bool two = s[i] >= 0xC2;
        if (s[i] >= 0xC4)
            return 0;
        bytes[n++] = (char)(two ? (s[i] & 3) << 6 | (s[i + 1] & 0x3F) : s[i]);
        i += two;
    }
    node->text = bytes;
    node->n = n;
    *out = node;
    return 0;
}

static bool is_hashable(const struct tu_pnode *node)
{
    return node->kind != TU_P_LIST && node->kind != TU_P_DICT && node->kind != TU_P_SET;
}

/* OrderedDict(), or OrderedDict([[key, value], …]) as Python 2 pickled it. */
static int ordered_dict(struct tu_pnode **out, struct tu_arena *a,
                        const struct tu_pnode *list, struct tu_err *err)
{
    size_t pairs = list ? list->n : 0;
    for (size_t i = 0; i < pairs; i++) {
        const struct tu_pnode *pair = list->item[i];
        if ((pair->kind != TU_P_LIST && pair->kind != TU_P_TUPLE) || pair->n != 2 ||
            !is_hashable(pair->item[0]))
            return 0;
    }
    struct tu_pnode *dict = tu_pnode_new(a, TU_P_DICT, 2 * pairs, err);
    if (!dict)
        return TU_ENOMEM;
    dict->text = "collections OrderedDict";
    for (size_t i = 0; i < pairs; i++)
        memcpy(dict->item + 2 * i, list->item[i]->item, 2 * sizeof(struct tu_pnode *));
    *out = dict;
    return 0;
}

static int set_of(struct tu_pnode **out, struct tu_arena *a, enum tu_pkind kind,
                  const struct tu_pnode *list, struct tu_err *err)
{
    for (size_t i = 0; i < list->n; i++)
        if (!is_hashable(list->item[i]))
            return 0;
    struct tu_pnode *set = tu_pnode_new(a, kind, list->n, err);
    if (!set)
        return TU_ENOMEM;
    if (list->n)
        memcpy(set->item, list->item, list->n * sizeof(struct tu_pnode *));
    *out = set;
    return 0;
}

int tui_pickle_pure(struct tu_pnode **out, struct tu_arena *a, const char *name,
                    const struct tu_pnode *args, struct tu_err *err)
{
    const struct tu_pnode *first = tui_pnode_item(args, 0),
                          *second = tui_pnode_item(args, 1);
    bool list = args->n == 1 && first->kind == TU_P_LIST;
    *out = NULL;
    if (!strcmp(name, "collections OrderedDict") && (list || !args->n))
        return ordered_dict(out, a, first, err);
    if (!strcmp(name, "_codecs encode") && args->n == 2 && first->kind == TU_P_TEXT &&
        second->kind == TU_P_TEXT && !strcmp(second->text, "latin1"))
        return latin1(out, a, first, err);
    const char *plain = !strncmp(name, "__builtin__ ", 12) ? name + 12
                        : !strncmp(name, "builtins ", 9)   ? name + 9
                                                           : "";
    if (!args->n && !strcmp(plain, "bytes")) { /* what protocol 2 has for b'' */
        *out = tu_pnode_bytes(a, TU_P_BYTES, "", 0, err);
        return *out ? 0 : TU_ENOMEM;
    }
    if (list && !strcmp(plain, "set"))
        return set_of(out, a, TU_P_SET, first, err);
    if (list && !strcmp(plain, "frozenset"))
        return set_of(out, a, TU_P_FROZENSET, first, err);
    return 0;
}
