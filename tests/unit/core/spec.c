/* SPDX-License-Identifier: Apache-2.0 */
/* spec.c: NAME[:KEY=VALUE,…]. */
#include <tensorutils/core.h>
#include "../inject.h"

static void refused(const char *text, const char *why)
{
    struct tu_spec s;
    struct tu_err err;
    int rc = tu_spec_parse(&s, text, &err);
    ok(rc == TU_EUSAGE && strstr(err.msg, why), "'%s' is refused: %s", text,
       rc ? err.msg : "");
    if (!rc)
        tu_spec_release(&s);
}

static int parse(const void *arg, struct tu_err *err)
{
    struct tu_spec s;
    (void)arg;
    int rc = tu_spec_parse(&s, "k:a=1,b=2", err);
    inject_add("yes", rc ? 0 : 3);
    tu_spec_release(&s);
    return rc;
}

int main(void)
{
    static const char *const known[] = {"tp", "pp", "shape", "flag", "e", NULL};
    struct tu_spec s;
    struct tu_err err;
    uint64_t v;

    ok(!tu_spec_parse(&s, "megatron", &err), "a name alone");
    eq_str(s.name, "megatron", "its name");
    eq_u64(s.n, 0, "no keys");
    eq_int(tu_spec_check(&s, known, &err), 0, "nothing unknown");
    tu_spec_release(&s);

    ok(!tu_spec_parse(&s, "k:tp=2,shape=1x4096x8,flag,e=a=b:c+d", &err),
       "a name with keys");
    eq_str(s.name, "k", "its name");
    eq_u64(s.n, 4, "four keys");
    eq_str(tu_spec_get(&s, "shape"), "1x4096x8", "a shape");
    eq_str(tu_spec_get(&s, "flag"), "", "a key without =");
    eq_str(tu_spec_get(&s, "e"), "a=b:c+d", "a value goes to the comma");
    eq_str(tu_spec_get(&s, "zz"), NULL, "an absent key");
    eq_int(tu_spec_check(&s, known, &err), 0, "all known");
    ok(!tu_spec_u64(&s, "tp", 1, &v, &err) && v == 2, "a number");
    ok(!tu_spec_u64(&s, "pp", 7, &v, &err) && v == 7, "an absent number");
    eq_int(tu_spec_u64(&s, "shape", 1, &v, &err), TU_EUSAGE, "no number");
    ok(!strncmp(err.msg, "k: shape: '1x4096x8'", 20), "names the key: %s", err.msg);
    tu_spec_release(&s);

    ok(!tu_spec_parse(&s, "k:hsape=1", &err), "a key nobody knows");
    eq_int(tu_spec_check(&s, known, &err), TU_EUSAGE, "is found");
    eq_str(err.msg, "k: unknown key 'hsape' (its keys: tp, pp, shape, flag, e); did you mean 'shape'?",
           "with the nearest one");
    tu_spec_release(&s);
    ok(!tu_spec_parse(&s, "k:something=1", &err), "a key like no other");
    eq_int(tu_spec_check(&s, known, &err), TU_EUSAGE, "is found");
    eq_str(err.msg, "k: unknown key 'something' (its keys: tp, pp, shape, flag, e)", "without advice");
    tu_spec_release(&s);

    ok(!tu_spec_parse(&s, "k:a=1", &err), "a key where there are none");
    eq_int(tu_spec_check(&s, known + 5, &err), TU_EUSAGE, "is found");
    eq_str(err.msg, "k: unknown key 'a' (it has no keys)", "and said");
    tu_spec_release(&s);

    refused("", "the name is empty");
    refused(":a=1", "the name is empty");
    refused("k:", "a key is empty");
    refused("k:a=1,", "a key is empty");
    refused("k:,a=1", "a key is empty");
    refused("k:=1", "a key is empty");
    refused("k:a=1,b=2,a=3", "a key is given twice");

    inject_memory(&(struct inject){.name = "a specification", .run = parse});
    tu_spec_release(&s);
    tu_spec_release(&s);
    tu_spec_release(NULL);
    return tap_done();
}
