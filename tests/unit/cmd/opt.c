/* SPDX-License-Identifier: Apache-2.0 */
/* opt.c: how options are parsed (tensorutils(7)), table by table. */
#include "common/opt.h"

#include <stdlib.h>
#include "../tap.h"

static struct {
    bool flag, neg;
    unsigned count;
    uint64_t u64, size, duration;
    int64_t i64;
    double real, rate;
    const char *text, *maybe, *device;
    int choice, when;
    struct tu_spec spec;
    struct tu_pattern *regex;
    uint32_t dtype;
    struct tu_shape shape;
    struct tu_list numbers, words, specs, names;
} v;

static const char *const colours[] = {"red", "green", "blue", NULL};
static const char *const whens[] = {"always", "auto", "never", NULL};

static const struct tu_opt table[] = {
    {'a', "flag", NULL, "", TU_OPT_FLAG, &v.flag, NULL, 0},
    {0, "neg", NULL, "", TU_OPT_FLAG, &v.neg, NULL, TU_OPT_NEGATABLE},
    {'c', "count", NULL, "", TU_OPT_COUNT, &v.count, NULL, 0},
    {'j', "u64", NULL, "", TU_OPT_U64, &v.u64, NULL, 0},
    {'i', "i64", NULL, "", TU_OPT_I64, &v.i64, NULL, 0},
    {0, "real", NULL, "", TU_OPT_DOUBLE, &v.real, NULL, 0},
    {'s', "size", NULL, "", TU_OPT_SIZE, &v.size, NULL, 0},
    {0, "rate", NULL, "", TU_OPT_RATE, &v.rate, NULL, 0},
    {0, "duration", NULL, "", TU_OPT_DURATION, &v.duration, NULL, 0},
    {'t', "text", NULL, "", TU_OPT_STRING, &v.text, NULL, 0},
    {0, "maybe", NULL, "", TU_OPT_STRING, &v.maybe, NULL, TU_OPT_MAYBE},
    {0, "choice", NULL, "", TU_OPT_CHOICE, &v.choice, colours, 0},
    {'w', "when", NULL, "", TU_OPT_CHOICE, &v.when, whens,
     TU_OPT_MAYBE | TU_OPT_NEGATABLE},
    {0, "spec", NULL, "", TU_OPT_SPEC, &v.spec, NULL, 0},
    {0, "regex", NULL, "", TU_OPT_REGEX, &v.regex, NULL, 0},
    {0, "dtype", NULL, "", TU_OPT_DTYPE, &v.dtype, NULL, 0},
    {0, "shape", NULL, "", TU_OPT_SHAPE, &v.shape, NULL, 0},
    {0, "device", NULL, "", TU_OPT_DEVICE, &v.device, NULL, 0},
    {0, "numbers", NULL, "", TU_OPT_U64, &v.numbers, NULL, TU_OPT_LIST},
    {0, "words", NULL, "", TU_OPT_STRING, &v.words, NULL, TU_OPT_LIST},
    {0, "names", NULL, "", TU_OPT_STRING, &v.names, NULL, TU_OPT_EACH | TU_OPT_SPECS},
    {0, "specs", NULL, "", TU_OPT_SPEC, &v.specs, NULL, TU_OPT_EACH},
    {0},
};
static const struct tu_opt *const tables[] = {table, NULL};

static char text[512]; /* the arguments are written to: lists are cut at their commas */
static char *args[32];
static int nargs;
static struct tu_err err;

static void split(const char *line)
{
    snprintf(text, sizeof text, "prog %s", line);
    nargs = 0;
    for (char *p = strtok(text, " "); p; p = strtok(NULL, " "))
        args[nargs++] = p;
    args[nargs] = NULL;
}

/* Parse a line split at spaces; operands end up in args[0 … nargs-1]. */
static int parse(const char *line)
{
    split(line);
    err = (struct tu_err){0};
    return tu_opt_parse(tables, &nargs, args, &err);
}

static void test_forms(void)
{
    eq_int(parse("-aj4 x --size=1KB -cc y -t word -- -z -"), 0,
           "bundles, values, operands, --");
    ok(v.flag, "-a in a bundle");
    eq_u64(v.u64, 4, "-j4 at a bundle's end");
    eq_u64(v.size, 1000, "--size=1KB");
    eq_u64(v.count, 2, "-cc counts");
    eq_str(v.text, "word", "-t word");
    eq_int(nargs, 4, "operands");
    eq_str(args[2], "-z", "after -- nothing is an option");
    eq_str(args[3], "-", "- is an operand");
    eq_int(parse("--u64 7 --u64=9"), 0, "repeated");
    eq_u64(v.u64, 9, "the last one counts");
    eq_int(parse("--neg"), 0, "negatable");
    ok(v.neg, "--neg");
    eq_int(parse("--no-neg -i -5"), 0, "a value may begin with a dash");
    ok(!v.neg && v.i64 == -5, "--no-neg, -i -5");
    eq_int(parse("--when x"), 0, "an optional value needs =");
    eq_int(v.when, 0, "and is the first choice without");
    eq_str(args[0], "x", "so x is an operand");
    eq_int(parse("--when=auto"), 0, "optional value given");
    eq_int(v.when, 1, "--when=auto");
    eq_int(parse("--no-when --maybe"), 0, "negated choice");
    eq_int(v.when, 2, "--no-when is the last choice");
    eq_str(v.maybe, "", "no value for a text is empty");
    eq_int(parse("--text="), 0, "an empty value is a value");
    eq_str(v.text, "", "--text=");
}

static void test_types(void)
{
    eq_int(parse("--rate 20GB/s --duration 5ms --real 1e-3 --choice blue --dtype bf16 "
                 "--device cuda:1"),
           0, "types");
    ok(v.rate == 20e9, "20GB/s");
    eq_u64(v.duration, 5000000, "5ms");
    ok(v.real == 1e-3, "1e-3");
    eq_int(v.choice, 2, "blue");
    eq_u64(v.dtype, TU_BF16, "bf16");
    eq_str(v.device, "cuda:1", "cuda:1");
    eq_int(parse("--rate 1.5"), 0, "a bare rate");
    ok(v.rate == 1.5e9, "is GB/s");
    eq_int(parse("--shape 2x3 --spec tp:size=4,mode=a+b --regex l\\.[0-9]+"), 0,
           "texts with structure");
    ok(v.shape.given && v.shape.rank == 2 && v.shape.dim[1] == 3, "2x3");
    eq_str(v.spec.name, "tp", "name of the spec");
    eq_str(tu_spec_get(&v.spec, "mode"), "a+b", "key of the spec");
    eq_int(parse("--numbers 1,2 --numbers=3 --words a,b --specs x:k=1,l=2 --specs y"), 0,
           "lists");
    eq_u64(v.numbers.n, 3, "commas and repeats add");
    eq_u64(TU_LIST(&v.numbers, uint64_t)[2], 3, "the third number");
    eq_str(TU_LIST(&v.words, const char *)[1], "b", "a list of texts");
    eq_u64(v.specs.n, 2, "specs are one each");
    eq_str(tu_spec_get(&TU_LIST(&v.specs, struct tu_spec)[0], "l"), "2",
           "commas inside a spec stay");
    eq_int(parse("--names a,hier:levels=2+3,fan=4,b:x=1 --names c"), 0, "names with keys");
    eq_u64(v.names.n, 4, "commas separate names, not keys");
    eq_str(TU_LIST(&v.names, const char *)[1], "hier:levels=2+3,fan=4", "a name with its keys");
    eq_str(TU_LIST(&v.names, const char *)[2], "b:x=1", "the next one");
}

static void test_refusals(void)
{
    static const struct {
        const char *line, *part;
    } bad[] = {
        {"--fla", "did you mean '--flag'"},
        {"--unknownthing", "unknown option '--unknownthing'"},
        {"-Z", "unknown option '-Z'"},
        {"--u64", "needs a value"},
        {"-j", "needs a value"},
        {"--flag=1", "takes no value"},
        {"--no-flag", "unknown option"},
        {"--no-neg=1", "takes no value"},
        {"--choice gren", "did you mean 'green'"},
        {"--u64 x", "--u64"},
        {"--u64 -1", "--u64"},
        {"--size 1.5K", "--size"},
        {"--size 16E", "--size"},
        {"--dtype bf15", "did you mean 'bf16'"},
        {"--device gpu", "cuda"},
        {"--device cuda:x", "--device"},
        {"--numbers 1,,2", "empty"},
        {"--rate 3parsec", "unit"},
        {"--regex (", "--regex"},
        {"--shape 2x-1", "--shape"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        eq_int(parse(bad[i].line), TU_EUSAGE, "refused: %s", bad[i].line);
        ok(strstr(err.msg, bad[i].part), "%s: '%s' is in: %s", bad[i].line, bad[i].part,
           err.msg);
    }
}

static int first_operand(const char *line)
{
    split(line);
    return tu_opt_operand(tables, nargs, args);
}

static void test_first_operand(void)
{
    eq_int(first_operand("-j 4 --size 1K -a sub x"), 6,
           "values of options are no operands");
    eq_int(first_operand("--what sub"), 2, "an unknown option is taken for a flag");
    eq_int(first_operand("-a -- -x"), 3, "-- is none itself");
    eq_int(first_operand("-a --"), 0, "no operand");
}

int main(void)
{
    test_forms();
    test_types();
    test_refusals();
    test_first_operand();
    return tap_done();
}
