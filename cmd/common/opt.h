/* SPDX-License-Identifier: Apache-2.0 */
/* opt.h: the option table: one declaration gives parsing, --help, completion and the
 * man page check.
 *
 * Rules: --name=value and --name value; an optional value needs '='; -j4 and -j 4;
 * short flags may be bundled; -- ends options; operands and options mix; "-" is an
 * operand; long names are exact; a repeated single-value option takes the last.
 * Parsing prints nothing. */
#ifndef COMMON_OPT_H
#define COMMON_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tensorutils/core.h>

/* What a value is, and what dest points to. */
enum tu_opt_type {
    TU_OPT_END,      /* ends a table */
    TU_OPT_FLAG,     /* bool: true */
    TU_OPT_COUNT,    /* unsigned: one more each time */
    TU_OPT_U64,      /* uint64_t */
    TU_OPT_I64,      /* int64_t */
    TU_OPT_DOUBLE,   /* double */
    TU_OPT_SIZE,     /* uint64_t, bytes: 16M, 1KB */
    TU_OPT_RATE,     /* double, bytes per second: 20GB/s; a bare number is GB/s */
    TU_OPT_DURATION, /* uint64_t, nanoseconds: 5ms; a bare number is seconds */
    TU_OPT_STRING,   /* const char * */
    TU_OPT_CHOICE,   /* int: index in choices */
    TU_OPT_SPEC,     /* struct tu_spec: NAME[:KEY=VALUE,…] */
    TU_OPT_REGEX,    /* struct tu_pattern *: PCRE2 from the start of the name */
    TU_OPT_GLOB,     /* struct tu_pattern *: of the whole name */
    TU_OPT_FILE_IN,  /* const char * */
    TU_OPT_FILE_OUT, /* const char * */
    TU_OPT_DTYPE,    /* uint32_t: code */
    TU_OPT_SHAPE,    /* struct tu_shape */
    TU_OPT_DEVICE,   /* const char *: cpu, cuda[:N], auto */
};

enum tu_opt_flags {
    TU_OPT_LIST = 1,      /* a struct tu_list; commas separate values, repeats add */
    TU_OPT_EACH = 2,      /* a struct tu_list; each use adds a value, commas and all */
    TU_OPT_SPECS = 32,    /* with EACH: a comma ends a NAME:KEY=VALUE,… where no KEY= follows */
    TU_OPT_MAYBE = 4,     /* the value may be left out: "", or the first choice */
    TU_OPT_NEGATABLE = 8, /* --no-NAME too: false, or the last choice */
    TU_OPT_POSITIVE = 64, /* of numbers, sizes and rates: a 0 is refused */
    TU_OPT_HIDDEN = 16,   /* not in --help and completions */
};

struct tu_opt {
    int shortname; /* 0: none */
    const char *name;
    const char *arg; /* the value in help; NULL: the type's word, or the choices */
    const char *help;
    enum tu_opt_type type;
    void *dest;
    const char *const *choices; /* NULL-ended */
    unsigned flags;
};

struct tu_shape {
    bool given;
    unsigned rank;
    uint64_t dim[TU_RANK_MAX];
};

struct tu_list {
    size_t n, cap;
    void *v; /* array of what dest would point to for a single value */
};
#define TU_LIST(list, type) ((type *)(list)->v)

/* A set of tables, NULL-ended; a name found in an earlier one wins. */
typedef const struct tu_opt *const *tu_opt_tables;

/* Parse argv[1] … argv[*argc-1]. Operands are moved to argv[0] … argv[*argc-1], *argc
 * is their number. Errors: TU_EUSAGE. */
TU_MUST int tu_opt_parse(tu_opt_tables tables, int *argc, char **argv,
                         struct tu_err *err);
/* Index of the first operand of argv, 0 if there is none. Unknown options are taken
 * for flags. */
int tu_opt_operand(tu_opt_tables tables, int argc, char **argv);
/* Does the option take a value? */
bool tu_opt_valued(const struct tu_opt *o);
/* "FILE", "auto|always|never": what stands for the value in help. buf is used for
 * choices. */
const char *tu_opt_arg(const struct tu_opt *o, char *buf, size_t n);
/* The type's name in --dump-options. */
const char *tu_opt_type_name(const struct tu_opt *o);

#endif
