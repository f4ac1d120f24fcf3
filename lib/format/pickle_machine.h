/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_machine.h: the pickle machine: its stack, marks and memo, and the opcodes.
 *
 * tui_pm_… (pickle_machine.c) are what opcodes are made of; tui_pop_… are the opcodes:
 * those that make and fill values (pickle_make.c), and those that name and call things
 * (pickle_call.c). The table of them is in pickle_read.c. */
#ifndef TU_FORMAT_PICKLE_MACHINE_H
#define TU_FORMAT_PICKLE_MACHINE_H

#include "pickle.h"

struct tu_pickle {
    struct tu_arena *arena;
    struct tu_pnode *root;
    struct tu_pglobal *global;
    size_t globals, cap;
    uint64_t nodes;
};

struct tui_pm {
    struct tu_pickle *p;
    const unsigned char *data;
    size_t n, at, op; /* op: offset of the opcode at hand */
    struct tu_pickle_limits max;
    uint64_t nodes;
    struct tu_pnode **stack;
    size_t depth, stack_cap;
    size_t *mark; /* heights of the stack */
    size_t marks, mark_cap;
    struct tu_pnode **memo; /* [memo_cap], NULL where unused */
    size_t memo_cap, memo_used;
    bool stop;
    struct tu_err *err;
};

struct tui_pop;
typedef int tui_pop_fn(struct tui_pm *m, const struct tui_pop *op);

/* A row of the table of opcodes. One without a function is refused. */
struct tui_pop {
    const char *name;
    tui_pop_fn *run;
    unsigned n; /* width of its number, count of its values, or the value itself */
    enum tu_pkind kind; /* of what it makes or fills */
};

/* "BINGET"; also of a byte that is no opcode. */
const char *tui_pop_name(unsigned char op);

/* Failures at the opcode at hand: they return the code. */
int tui_pm_fail(struct tui_pm *m, int code, const char *what);
int tui_pm_limit(struct tui_pm *m, const char *what, uint64_t found, uint64_t max);
int tui_pm_kind(struct tui_pm *m, const char *what, const struct tu_pnode *node);
/* The code of the failure that was reported. */
int tui_pm_failed(struct tui_pm *m);

/* The next n bytes of input. */
int tui_pm_take(struct tui_pm *m, size_t n, const unsigned char **p);
/* A little-endian unsigned number of `width` bytes. */
int tui_pm_number(struct tui_pm *m, unsigned width, uint64_t *v);
/* A text or bytes whose length is a number of `width` bytes; NULL when it failed. */
struct tu_pnode *tui_pm_text(struct tui_pm *m, unsigned width, enum tu_pkind kind);

int tui_pm_push(struct tui_pm *m, struct tu_pnode *node);
int tui_pm_push_new(struct tui_pm *m, enum tu_pkind kind, int64_t integer, double real);
/* The n values on top, which must lie above the last mark. */
int tui_pm_top(struct tui_pm *m, size_t n, struct tu_pnode ***values);
/* Remove the last mark; its values are values[0 … n-1], still on the stack. */
int tui_pm_pop_mark(struct tui_pm *m, struct tu_pnode ***values, size_t *n);
/* Store the value on top under an index. */
int tui_pm_memoize(struct tui_pm *m, uint64_t index);

/* Count values against the limit. */
int tui_pm_charge(struct tui_pm *m, size_t values);
/* A node made by the opcode at hand, with room for n items; NULL when it failed. */
struct tu_pnode *tui_pm_node(struct tui_pm *m, enum tu_pkind kind, size_t n);
/* Replace the n values on top by a node that holds them. */
int tui_pm_gather(struct tui_pm *m, enum tu_pkind kind, struct tu_pnode **values,
                  size_t n);
/* Part `k` of a CALL, made when it is not there yet; NULL when it failed. */
struct tu_pnode *tui_pm_part(struct tui_pm *m, struct tu_pnode *call, size_t k,
                             enum tu_pkind kind);

tui_pop_fn tui_pop_proto, tui_pop_frame, tui_pop_stop, tui_pop_constant, tui_pop_int,
    tui_pop_long, tui_pop_binfloat, tui_pop_text, tui_pop_string, tui_pop_mark,
    tui_pop_pop, tui_pop_pop_mark, tui_pop_dup, tui_pop_tuple, tui_pop_gather,
    tui_pop_frozenset, tui_pop_set_one, tui_pop_set_many, tui_pop_put,
    tui_pop_memoize, tui_pop_get, tui_pop_global, tui_pop_stack_global, tui_pop_call,
    tui_pop_newobj_ex, tui_pop_bytearray8, tui_pop_build;

#endif
