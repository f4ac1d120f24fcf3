/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_write.c: pickles of protocol 2, byte for byte as torch.save has them from
 * Python.
 *
 * Like Python's pickler it memoizes every text, tuple and object after writing it,
 * numbers them by that order, and writes pairs and items in batches of 1000. Values are
 * the same when their nodes are the same; globals, and the texts that every tensor
 * repeats, when they read the same. */
#include <stdio.h>

#include "pickle.h"

#define BATCH 1000
#define DEPTH_MAX                                                                        \
    1000 /* what Python itself allows; a tuple that holds itself ends here too */
#define NAMES_MAX 64 /* distinct globals and constants that are memoized */

enum op { /* the opcodes of protocol 2 that are written */
          MARK = '(',
          EMPTY_TUPLE = ')',
          STOP = '.',
          BINFLOAT = 'G',
          BININT = 'J',
          BININT1 = 'K',
          BININT2 = 'M',
          NONE = 'N',
          BINPERSID = 'Q',
          REDUCE = 'R',
          BINUNICODE = 'X',
          EMPTY_LIST = ']',
          APPEND = 'a',
          BUILD = 'b',
          GLOBAL = 'c',
          APPENDS = 'e',
          BINGET = 'h',
          LONG_BINGET = 'j',
          BINPUT = 'q',
          LONG_BINPUT = 'r',
          SETITEM = 's',
          TUPLE = 't',
          SETITEMS = 'u',
          EMPTY_DICT = '}',
          PROTO = 0x80,
          NEWOBJ = 0x81,
          TUPLE1 = 0x85,
          NEWTRUE = 0x88,
          NEWFALSE = 0x89,
          LONG1 = 0x8a,
          LONG4 = 0x8b,
};

/* A container that is being written. */
struct frame {
    const struct tu_pnode *node;
    unsigned phase; /* of a CALL */
    size_t at;      /* next item */
    size_t left;    /* items of the batch at hand that are still to come */
    bool batch, marked;
};

struct writer {
    struct tu_buf *out;
    const struct tu_tensor *tensor;
    size_t n;
    size_t *order;         /* [n] by storage number */
    size_t keys;           /* storages so far */
    uint32_t *tensor_memo; /* [n] 1 + memo index of the tensor, 0: not yet written */
    uint32_t memo;         /* next memo index */
    struct {
        const char *text;
        enum op op;
        uint32_t memo;
    } name[NAMES_MAX];
    size_t names;
    struct {
        const struct tu_pnode *node;
        uint32_t memo;
    } *slot; /* open addressing by address */
    size_t slots, used;
    struct frame *frame;
    size_t depth, cap;
    int rc; /* the first failure; nothing is written after it */
    struct tu_err *err;
};

/* Bytes ------------------------------------------------------------------------------ */

static void emit(struct writer *w, const void *p, size_t n)
{
    if (w->rc == 0)
        w->rc = tu_buf_add(w->out, p, n, w->err);
}

static void emit_op(struct writer *w, enum op op)
{
    unsigned char byte = (unsigned char)op;
    emit(w, &byte, 1);
}

/* An opcode whose argument has 1 byte in the short form and 4 in the long one. */
static void emit_index(struct writer *w, enum op small, enum op large, uint32_t v)
{
    unsigned char p[5] = {(unsigned char)(v < 256 ? small : large)};
    tu_put32(p + 1, v);
    emit(w, p, v < 256 ? 2 : 5);
}

/* Number the value that was just written; the number is returned. */
static uint32_t memoize(struct writer *w)
{
    if (w->memo == UINT32_MAX && w->rc == 0)
        w->rc = tu_fail(w->err, TU_ELIMIT, "pickle: more than 2^32 values");
    emit_index(w, BINPUT, LONG_BINPUT, w->memo);
    return w->memo++;
}

static void emit_fetch(struct writer *w, uint32_t memo)
{
    emit_index(w, BINGET, LONG_BINGET, memo);
}

static void emit_int(struct writer *w, int64_t v)
{
    unsigned char p[10] = {LONG1};
    size_t n = 8;
    if (v >= 0 && v <= UINT16_MAX) {
        p[0] = v < 256 ? BININT1 : BININT2;
        tu_put16(p + 1, (uint16_t)v);
        emit(w, p, v < 256 ? 2 : 3);
    } else if (v >= INT32_MIN && v <= INT32_MAX) {
        p[0] = BININT;
        tu_put32(p + 1, (uint32_t)v);
        emit(w, p, 5);
    } else {
        tu_put64(p + 2, (uint64_t)v);
        while (p[1 + n] == (p[n] & 0x80 ? 0xFF : 0)) /* the shortest two's complement */
            n--;
        p[1] = (unsigned char)n;
        emit(w, p, 2 + n);
    }
}

/* Decimal digits as a two's complement number. */
static void emit_bigint(struct writer *w, const struct tu_pnode *node)
{
    bool negative = node->n && node->text[0] == '-';
    size_t room = node->n / 2 + 6, n = 1;
    unsigned char *p = w->rc == 0 ? tu_calloc(room, 1, w->err) : NULL, head[5] = {LONG4};
    if (!p) {
        w->rc = w->rc ? w->rc : TU_ENOMEM;
        return;
    }
    for (size_t i = negative; i < node->n; i++) {
        unsigned carry = (unsigned)(node->text[i] - '0');
        for (size_t k = 0; k < n; k++) {
            carry += p[k] * 10u;
            p[k] = (unsigned char)carry;
            carry >>= 8;
        }
        if (carry)
            p[n++] = (unsigned char)carry;
    }
    unsigned carry = 1;
    for (size_t k = 0; negative && k < n + 1; k++) {
        carry += (unsigned char)~p[k];
        p[k] = (unsigned char)carry;
        carry >>= 8;
    }
    n++; /* room for the sign; dropped where it says nothing new */
    if (n > 1 && p[n - 1] == (p[n - 2] & 0x80 ? 0xFF : 0))
        n--;
    tu_put32(head + 1, (uint32_t)n);
    if (n < 256)
        emit(w, (unsigned char[]){LONG1, (unsigned char)n}, 2);
    else
        emit(w, head, 5);
    emit(w, p, n);
    tu_free(p);
}

static void emit_real(struct writer *w, double v)
{
    unsigned char p[9] = {BINFLOAT};
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    for (int i = 0; i < 8; i++)
        p[1 + i] = (unsigned char)(bits >> (56 - 8 * i));
    emit(w, p, sizeof p);
}

static void emit_text(struct writer *w, const char *s, size_t n)
{
    unsigned char p[5] = {BINUNICODE};
    if (n > UINT32_MAX && w->rc == 0)
        w->rc = tu_fail(w->err, TU_ELIMIT, "pickle: a text of %zu bytes", n);
    tu_put32(p + 1, (uint32_t)n);
    emit(w, p, 5);
    emit(w, s, n);
}

/* A global, or a text that Python shares because it is a constant of torch's source. */
static void emit_name(struct writer *w, enum op op, const char *text)
{
    for (size_t i = 0; i < w->names; i++) {
        if (w->name[i].op == op && !strcmp(w->name[i].text, text)) {
            emit_fetch(w, w->name[i].memo);
            return;
        }
    }
    if (op == GLOBAL) {
        const char *space = strchr(text, ' ');
        if (!space && w->rc == 0)
            w->rc = tu_fail(w->err, TU_EUSAGE, "pickle: global '%s' is not 'module name'",
                            text);
        if (w->rc < 0)
            return;
        emit_op(w, GLOBAL);
        emit(w, text, (size_t)(space - text));
        emit(w, "\n", 1);
        emit(w, space + 1, strlen(space + 1));
        emit(w, "\n", 1);
    } else {
        emit_text(w, text, strlen(text));
    }
    uint32_t memo = memoize(w);
    if (w->names < NAMES_MAX) {
        w->name[w->names].text = text;
        w->name[w->names].op = op;
        w->name[w->names++].memo = memo;
    }
}

/* A tuple of n values that were written since `mark` (if n > 3, after a MARK). */
static void emit_tuple(struct writer *w, size_t n)
{
    emit_op(w, n == 0 ? EMPTY_TUPLE : n <= 3 ? (enum op)(TUPLE1 + n - 1) : TUPLE);
}

/* Memo by node ----------------------------------------------------------------------- */

static size_t slot_of(const struct writer *w, const struct tu_pnode *node)
{
    size_t i = (size_t)(((uint64_t)(uintptr_t)node >> 4) * UINT64_C(0x9E3779B97F4A7C15) >>
                        32);
    for (i &= w->slots - 1; w->slot[i].node && w->slot[i].node != node;
         i = (i + 1) & (w->slots - 1))
        continue;
    return i;
}

static bool fetch(struct writer *w, const struct tu_pnode *node)
{
    if (!w->slots)
        return false;
    size_t i = slot_of(w, node);
    if (w->slot[i].node)
        emit_fetch(w, w->slot[i].memo);
    return w->slot[i].node;
}

static void widen(struct writer *w)
{
    struct writer old = *w;
    w->slots = old.slots ? 2 * old.slots : 256;
    w->slot = tu_calloc(w->slots, sizeof *w->slot, w->err);
    if (!w->slot) {
        w->slot = old.slot;
        w->slots = old.slots;
        w->rc = TU_ENOMEM;
        return;
    }
    for (size_t i = 0; i < old.slots; i++)
        if (old.slot[i].node)
            w->slot[slot_of(w, old.slot[i].node)] = old.slot[i];
    tu_free(old.slot);
}

static void memoize_node(struct writer *w, const struct tu_pnode *node)
{
    uint32_t memo = memoize(w);
    if (w->rc == 0 && 2 * (w->used + 1) > w->slots)
        widen(w);
    if (w->rc < 0)
        return;
    size_t i = slot_of(w, node);
    w->slot[i].node = node;
    w->slot[i].memo = memo;
    w->used++;
}

/* Tensors ---------------------------------------------------------------------------- */

/* ('storage', class, key, 'cpu', numel) as a persistent id. */
static void emit_storage(struct writer *w, const char *class, uint64_t numel)
{
    char key[24];
    emit_op(w, MARK);
    emit_name(w, BINUNICODE, "storage");
    emit_name(w, GLOBAL, class);
    emit_text(w, key, (size_t)snprintf(key, sizeof key, "%zu", w->keys));
    memoize(w);
    emit_name(w, BINUNICODE, "cpu");
    emit_int(w, (int64_t)numel);
    emit_tuple(w, 5);
    memoize(w);
    emit_op(w, BINPERSID);
}

static void emit_dims(struct writer *w, const uint64_t *v, unsigned n)
{
    if (n > 3)
        emit_op(w, MARK);
    for (unsigned i = 0; i < n; i++)
        emit_int(w, (int64_t)v[i]);
    emit_tuple(w, n);
    if (n)
        memoize(w);
}

static void emit_tensor(struct writer *w, const struct tu_tensor *t,
                        const struct tui_torch_dtype *d)
{
    uint64_t dim[TU_RANK_MAX], stride[TU_RANK_MAX], step = 1;
    const struct tu_dtype *row = tu_dtype_find(t->dtype);
    for (unsigned i = t->rank; i-- > 0;) {
        dim[i] = i + 1 == t->rank ? t->dim[i] / d->pack : t->dim[i];
        stride[i] = step;
        step *= dim[i] ? dim[i] : 1;
    }
    emit_name(w, GLOBAL,
              d->storage ? "torch._utils _rebuild_tensor_v2"
                         : "torch._utils _rebuild_tensor_v3");
    emit_op(w, MARK);
    if (d->storage)
        emit_storage(w, d->storage, t->bytes / row->block_bytes);
    else
        emit_storage(w, "torch.storage UntypedStorage", t->bytes);
    emit_int(w, 0);
    emit_dims(w, dim, t->rank);
    emit_dims(w, stride, t->rank);
    emit_op(w, NEWFALSE);                            /* requires_grad */
    emit_name(w, GLOBAL, "collections OrderedDict"); /* backward hooks */
    emit_op(w, EMPTY_TUPLE);
    emit_op(w, REDUCE);
    memoize(w);
    if (!d->storage)
        emit_name(w, GLOBAL, d->name);
    emit_tuple(w, 6);
    memoize(w);
    emit_op(w, REDUCE);
}

static void write_tensor(struct writer *w, const struct tu_pnode *node)
{
    char shown[88], dtype[8];
    size_t i = (size_t)node->integer;
    if (node->integer < 0 || i >= w->n) {
        w->rc = tu_fail(w->err, TU_EUSAGE, "pickle: tensor %lld of %zu",
                        (long long)node->integer, w->n);
        return;
    }
    if (w->tensor_memo[i]) {
        emit_fetch(w, w->tensor_memo[i] - 1);
        return;
    }
    const struct tu_tensor *t = &w->tensor[i];
    const struct tui_torch_dtype *d = tui_torch_dtype(t->dtype);
    if (!d || t->rank > TU_RANK_MAX ||
        (d->pack > 1 && (!t->rank || t->dim[t->rank - 1] % d->pack))) {
        w->rc = tu_fail(w->err, TU_EDTYPE,
                        "'%s': torch has no tensor of this shape of %s",
                        tu_text_short(t->name, strlen(t->name), shown),
                        tu_dtype_text(t->dtype, dtype));
        return;
    }
    emit_tensor(w, t, d);
    w->order[w->keys++] = i;
    w->tensor_memo[i] = memoize(w) + 1;
}

/* Nodes ------------------------------------------------------------------------------ */

/* Protocol 2 has no bytes: they are _codecs.encode(text, 'latin1'). */
static void write_bytes(struct writer *w, const struct tu_pnode *node)
{
    if (node->n) {
        emit_name(w, GLOBAL, "_codecs encode");
        struct tu_buf text = {0};
        for (size_t i = 0; w->rc == 0 && i < node->n; i++) {
            unsigned char c = (unsigned char)node->text[i];
            char utf8[2] = {(char)(0xC0 | c >> 6), (char)(0x80 | (c & 0x3F))};
            w->rc = c < 0x80 ? tu_buf_add(&text, &c, 1, w->err)
                             : tu_buf_add(&text, utf8, 2, w->err);
        }
        emit_text(w, text.data, text.n);
        tu_buf_release(&text);
        memoize(w);
        emit_name(w, BINUNICODE, "latin1");
        emit_tuple(w, 2);
        memoize(w);
    } else {
        emit_name(w, GLOBAL, "__builtin__ bytes");
        emit_op(w, EMPTY_TUPLE);
    }
    emit_op(w, REDUCE);
    memoize_node(w, node);
}

/* What stands before the items of a container. */
static void open_container(struct writer *w, const struct tu_pnode *node)
{
    switch (node->kind) {
    case TU_P_TUPLE:
        if (node->n > 3)
            emit_op(w, MARK);
        break;
    case TU_P_LIST:
        emit_op(w, EMPTY_LIST);
        memoize_node(w, node);
        break;
    case TU_P_DICT:
        if (node->text) {
            emit_name(w, GLOBAL, node->text);
            emit_op(w, EMPTY_TUPLE);
            emit_op(w, REDUCE);
        } else {
            emit_op(w, EMPTY_DICT);
        }
        memoize_node(w, node);
        break;
    case TU_P_SET:
    case TU_P_FROZENSET:
        emit_name(w, GLOBAL,
                  node->kind == TU_P_SET ? "__builtin__ set" : "__builtin__ frozenset");
        emit_op(w, EMPTY_LIST);
        memoize(w);
        break;
    default: break;
    }
}

/* A container, and what protocol 2 can say of it. */
static void push_frame(struct writer *w, const struct tu_pnode *node)
{
    if (w->depth == DEPTH_MAX)
        w->rc = tu_fail(w->err, TU_ELIMIT, "pickle: values nested deeper than %d",
                        DEPTH_MAX);
    else if (node->kind == TU_P_CALL && tui_pnode_item(node, TU_P_KEYWORDS))
        w->rc = tu_fail(w->err, TU_EUNSUP, "pickle: '%s' is made with keyword arguments",
                        tui_pnode_class(node));
    if (w->rc < 0)
        return;
    open_container(w, node);
    if (w->rc == 0)
        w->rc = TU_GROW(&w->frame, &w->cap, w->depth, w->err);
    if (w->rc == 0)
        w->frame[w->depth++] = (struct frame){.node = node};
}

/* Write a node, or begin it and leave a frame. */
static void begin(struct writer *w, const struct tu_pnode *node)
{
    switch (node->kind) {
    case TU_P_NONE: emit_op(w, NONE); return;
    case TU_P_BOOL: emit_op(w, node->integer ? NEWTRUE : NEWFALSE); return;
    case TU_P_INT: emit_int(w, node->integer); return;
    case TU_P_BIGINT: emit_bigint(w, node); return;
    case TU_P_REAL: emit_real(w, node->real); return;
    case TU_P_GLOBAL: emit_name(w, GLOBAL, node->text); return;
    case TU_P_TENSOR: write_tensor(w, node); return;
    default: break;
    }
    if (node->kind == TU_P_TUPLE && !node->n) {
        emit_op(w, EMPTY_TUPLE);
    } else if (fetch(w, node)) {
        return;
    } else if (node->kind == TU_P_TEXT) {
        emit_text(w, node->text, node->n);
        memoize_node(w, node);
    } else if (node->kind == TU_P_BYTES) {
        write_bytes(w, node);
    } else {
        push_frame(w, node);
    }
}

/* The next item of seq, with the marks and opcodes of batches around them; NULL after the
 * last. Exact: a list or dict itself, which closes a last batch of one differently. */
static const struct tu_pnode *next_item(struct writer *w, struct frame *f,
                                        const struct tu_pnode *seq, bool exact)
{
    size_t unit = seq->kind == TU_P_DICT ? 2 : 1;
    for (;;) {
        if (f->left) {
            f->left--;
            return seq->item[f->at++];
        }
        if (f->batch)
            emit_op(w, unit == 2 ? (f->marked ? SETITEMS : SETITEM)
                                 : (f->marked ? APPENDS : APPEND));
        f->batch = false;
        size_t remaining = (seq->n - f->at) / unit;
        if (!remaining) {
            f->at = 0;
            return NULL;
        }
        f->marked = (exact ? seq->n / unit : remaining) > 1;
        if (f->marked)
            emit_op(w, MARK);
        f->left = unit * (size_t)tu_min(remaining, f->marked ? BATCH : 1);
        f->batch = true;
    }
}

/* The next child of a call; its own opcodes between them. NULL when it is done. */
static const struct tu_pnode *next_of_call(struct writer *w, struct frame *f)
{
    const struct tu_pnode *node = f->node, *part, *item;
    switch (f->phase) {
    case 0:
    case 1: return node->item[f->phase++];
    case 2:
        emit_op(w, node->newobj ? NEWOBJ : REDUCE);
        memoize_node(w, node);
        f->phase++;
        /* fall through */
    case 3:
        part = tui_pnode_item(node, TU_P_APPENDED);
        item = part ? next_item(w, f, part, false) : NULL;
        if (item)
            return item;
        f->phase++;
        /* fall through */
    case 4:
        part = tui_pnode_item(node, TU_P_ITEMS);
        item = part ? next_item(w, f, part, false) : NULL;
        if (item)
            return item;
        f->phase++;
        /* fall through */
    case 5:
        f->phase++;
        part = tui_pnode_item(node, TU_P_STATE);
        if (part)
            return part;
        return NULL;
    default: emit_op(w, BUILD); return NULL;
    }
}

/* One step of the innermost container. */
static void step(struct writer *w)
{
    struct frame *f = &w->frame[w->depth - 1];
    const struct tu_pnode *node = f->node, *child = NULL;
    if (node->kind == TU_P_CALL || node->kind == TU_P_PERSID ||
        node->kind == TU_P_TUPLE) {
        if (node->kind == TU_P_CALL)
            child = next_of_call(w, f);
        else if (f->at < node->n)
            child = node->item[f->at++];
    } else {
        child = next_item(w, f, node, !node->text);
    }
    if (child) {
        begin(w, child);
        return;
    }
    w->depth--;
    if (node->kind == TU_P_PERSID) {
        emit_op(w, BINPERSID);
    } else if (node->kind == TU_P_TUPLE) {
        emit_tuple(w, node->n);
        memoize_node(w, node);
    } else if (node->kind == TU_P_SET || node->kind == TU_P_FROZENSET) {
        emit_tuple(w, 1);
        memoize(w);
        emit_op(w, REDUCE);
        memoize_node(w, node);
    }
}

int tui_pickle_write(struct tu_buf *out, const struct tu_pnode *root,
                     const struct tu_tensor *tensor, size_t n, size_t *order,
                     struct tu_err *err)
{
    struct writer w = {.out = out, .tensor = tensor, .n = n, .order = order, .err = err};
    char shown[88];
    w.tensor_memo = tu_calloc(n, sizeof *w.tensor_memo, err);
    if (!w.tensor_memo)
        return TU_ENOMEM;
    emit(&w, "\x80\x02", 2); /* PROTO 2 */
    begin(&w, root);
    while (w.rc == 0 && w.depth)
        step(&w);
    emit_op(&w, STOP);
    for (size_t i = 0; w.rc == 0 && i < n; i++)
        if (!w.tensor_memo[i])
            w.rc = tu_fail(err, TU_EUSAGE, "'%s': not in the object that is to be saved",
                           tu_text_short(tensor[i].name, strlen(tensor[i].name), shown));
    tu_free(w.tensor_memo);
    tu_free(w.slot);
    tu_free(w.frame);
    return w.rc;
}

int tu_pickle_write(struct tu_buf *out, const struct tu_pnode *root,
                    const struct tu_tensor *tensor, size_t n, struct tu_err *err)
{
    size_t *order = tu_alloc(n, sizeof *order, err);
    if (!order)
        return TU_ENOMEM;
    int rc = tui_pickle_write(out, root, tensor, n, order, err);
    tu_free(order);
    return rc;
}
