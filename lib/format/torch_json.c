/* SPDX-License-Identifier: Apache-2.0 */
/* torch_json.c: pickled values that are no tensors, as JSON that says what they were.
 *
 * None, bool, int, float, str and list are JSON's own; everything else is an object of
 * one key:
 * {"int":"DIGITS"} beyond 2^53, {"real":"nan"}, {"utf8":HEX} for text that JSON cannot
 * hold,
 * {"bytes":HEX}, {"tuple":[…]}, {"set":[…]}, {"frozenset":[…]}, {"dict":[[KEY,VALUE],…]},
 * {"global":"MODULE NAME"}; and {"class":"MODULE NAME","args":[…],"state":…,"items":…,
 * "appended":…} for an object. */
#include <math.h>
#include <stdio.h>

#include "pickle.h"
#include "torch.h"

#define DEPTH_LEFT 12 /* of TU_JSON_DEPTH_META, below the place of the value */
#define VALUES_MAX 4096
#define TEXT_MAX ((size_t)1 << 20)
#define EXACT (INT64_C(1) << 53)

struct maker {
    unsigned values;
    struct tu_err *err;
    int rc;
};

static json_t *value(struct maker *m, const struct tu_pnode *node, int depth);

static json_t *check(struct maker *m, json_t *v)
{
    if (!v && m->rc == 0)
        m->rc = tu_fail(m->err, TU_ENOMEM, "out of memory");
    return v;
}

/* {key: v}; takes v. */
static json_t *tagged(struct maker *m, const char *key, json_t *v)
{
    if (!v)
        return NULL;
    json_t *object = check(m, json_object());
    if (object && json_object_set_new(object, key, v) < 0) {
        json_decref(object);
        return check(m, NULL);
    }
    if (!object)
        json_decref(v);
    return object;
}

static json_t *hex(struct maker *m, const char *key, const struct tu_pnode *node)
{
    char *text = tu_alloc(node->n * 2 + 1, 1, m->err);
    if (!text)
        return check(m, NULL);
    for (size_t i = 0; i < node->n; i++) {
        text[2 * i] = "0123456789abcdef"[(unsigned char)node->text[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[node->text[i] & 15];
    }
    json_t *v = check(m, json_stringn(text, 2 * node->n));
    tu_free(text);
    return tagged(m, key, v);
}

static json_t *text_of(struct maker *m, const struct tu_pnode *node)
{
    if (!tu_json_holds(node->text, node->n))
        return hex(m, "utf8", node);
    return check(m, json_stringn(node->text, node->n));
}

static json_t *integer_of(struct maker *m, const struct tu_pnode *node)
{
    char digits[24];
    if (node->kind == TU_P_INT && node->integer >= -EXACT && node->integer <= EXACT)
        return check(m, json_integer(node->integer));
    snprintf(digits, sizeof digits, "%lld", (long long)node->integer);
    const char *text = node->kind == TU_P_INT ? digits : node->text;
    return tagged(m, "int", check(m, json_string(text)));
}

static json_t *real_of(struct maker *m, double v)
{
    if (isfinite(v))
        return check(m, json_real(v));
    return tagged(m, "real",
                  check(m, json_string(isnan(v) ? "nan"
                                       : v > 0  ? "inf"
                                                : "-inf")));
}

/* Append v, which is taken; NULL and the list released where that cannot be. */
static json_t *push(struct maker *m, json_t *list, json_t *v)
{
    if (v && json_array_append_new(list, v) == 0)
        return list;
    if (v)
        check(m, NULL);
    json_decref(list);
    return NULL;
}

/* The items of a sequence; of a DICT, pairs. */
static json_t *array(struct maker *m, const struct tu_pnode *node, int depth)
{
    json_t *list = check(m, json_array());
    if (node->kind != TU_P_DICT) {
        for (size_t i = 0; list && i < node->n; i++)
            list = push(m, list, value(m, node->item[i], depth - 1));
        return list;
    }
    for (size_t i = 0; list && i < node->n; i += 2) {
        json_t *pair = check(m, json_array());
        for (size_t k = 0; pair && k < 2; k++)
            pair = push(m, pair, value(m, node->item[i + k], depth - 2));
        list = push(m, list, pair);
    }
    return list;
}

static json_t *object_of(struct maker *m, const struct tu_pnode *node, int depth)
{
    static const char *const parts[] = {NULL,    "args",     "state",
                                        "items", "appended", "keywords"};
    const char *class = tui_pnode_class(node);
    json_t *object = *class ? tagged(m, "class", check(m, json_string(class))) : NULL;
    for (size_t k = 1; object && k < node->n; k++) {
        const struct tu_pnode *part = node->item[k];
        if (!part || (k == TU_P_ARGS && !part->n))
            continue;
        json_t *v = k == TU_P_ARGS ? array(m, part, depth - 1)
                                   : value(m, part, depth - 1);
        if (!v || json_object_set_new(object, parts[k], v) < 0) {
            json_decref(object);
            object = v ? check(m, NULL) : NULL;
        }
    }
    return object;
}

static json_t *value(struct maker *m, const struct tu_pnode *node, int depth)
{
    bool text = node->kind == TU_P_TEXT || node->kind == TU_P_BYTES ||
                node->kind == TU_P_BIGINT;
    if (depth <= 0 || ++m->values > VALUES_MAX || (text && node->n > TEXT_MAX))
        return NULL;
    switch (node->kind) {
    case TU_P_NONE: return check(m, json_null());
    case TU_P_BOOL: return check(m, json_boolean(node->integer != 0));
    case TU_P_INT:
    case TU_P_BIGINT: return integer_of(m, node);
    case TU_P_REAL: return real_of(m, node->real);
    case TU_P_TEXT: return text_of(m, node);
    case TU_P_BYTES: return hex(m, "bytes", node);
    case TU_P_GLOBAL: return tagged(m, "global", check(m, json_string(node->text)));
    case TU_P_LIST: return array(m, node, depth - 1);
    case TU_P_TUPLE: return tagged(m, "tuple", array(m, node, depth - 2));
    case TU_P_SET: return tagged(m, "set", array(m, node, depth - 2));
    case TU_P_FROZENSET: return tagged(m, "frozenset", array(m, node, depth - 2));
    case TU_P_DICT: return tagged(m, "dict", array(m, node, depth - 2));
    case TU_P_CALL: return object_of(m, node, depth);
    default: return NULL; /* a storage */
    }
}

int tui_torch_json(json_t **out, const struct tu_pnode *node, struct tu_err *err)
{
    struct maker m = {.err = err};
    *out = value(&m, node, DEPTH_LEFT);
    return m.rc;
}

bool tui_torch_scalar(const struct tu_pnode *node)
{
    switch (node->kind) {
    case TU_P_LIST:
    case TU_P_TUPLE:
    case TU_P_SET:
    case TU_P_FROZENSET:
    case TU_P_DICT: return !node->n;
    case TU_P_CALL:
    case TU_P_PERSID: return false;
    default: return true;
    }
}
