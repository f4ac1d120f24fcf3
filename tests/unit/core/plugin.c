/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins: found, loaded once, refused for each reason. The good ones are compiled here,
 * with the system's compiler, since a plug-in is a file. */
#include <stdlib.h>
#include "../scratch.h"
#include "../tap.h"
#include "tensorutils/core/mem.h"
#include "tensorutils/core/plugin.h"

static char include_dir[1024];

/* What the plug-ins have in common; BODY and ABI are defined for the compiler. */
static const char source[] =
    "#include <tensorutils/core/plugin.h>\n"
    "static int number;\n"
    "__attribute__((unused)) static int\n"
    "fail(const struct tu_host *h, struct tu_err *e, const char *fmt, ...)\n"
    "{\n"
    "    va_list ap;\n"
    "    va_start(ap, fmt);\n"
    "    int code = h->vfail(e, TU_ENODEV, fmt, ap);\n"
    "    va_end(ap);\n"
    "    return code;\n"
    "}\n"
    "static int init(const struct tu_host *h, struct tu_err *e) { BODY }\n"
    "__attribute__((visibility(\"default\")))\n"
    "const struct tu_plugin tu_plugin = {\n"
    "    ABI, \"one\", \"number\", \"1.2\", init, &number};\n";

/* Compile a plug-in; false when there is no compiler. */
static bool build(const char *file, const char *abi, const char *body)
{
    char command[1600];
    FILE *f = fopen("p.c", "w");
    if (!f || fputs(source, f) < 0 || fclose(f) != 0)
        return false;
    snprintf(command, sizeof command,
             "cc -I'%s' -DABI='%s' -DBODY='%s' -shared -fPIC -o libtensorutils-%s p.c 2>cc.log",
             include_dir, abi, body, file);
    return system(command) == 0;
}

static void test_absent(void)
{
    const struct tu_plugin *p;
    struct tu_err err;
    const char *const folder[] = {"absent", ".", NULL};
    eq_int(tu_plugin_load(&p, "cuda", &err), TU_EMISSING, "before there are folders");
    ok(tu_plugin_name(0) == NULL, "no names");
    eq_int(tu_plugin_path(folder, NULL), 0, "folders");
    eq_int(tu_plugin_load(&p, "mpi", &err), TU_EMISSING, "an absent plug-in");
    ok(strstr(err.msg, "libopenmpi-dev") != NULL, "names the package: %s", err.msg);
    ok(p == NULL, "gives nothing");
    eq_int(tu_plugin_load(&p, "what", &err), TU_EMISSING, "an unknown plug-in");
    eq_str(err.msg, "plug-in 'what' is not installed", "its message");
    eq_int(tu_plugin_load(&p, "./x", &err), TU_EMISSING, "a name is no path");
    eq_int(tu_plugin_load(&p, "", &err), TU_EMISSING, "nor empty");
    FILE *f = fopen("libtensorutils-junk.so", "w");
    if (f) {
        fputs("not a library\n", f);
        fclose(f);
    }
    eq_int(tu_plugin_load(&p, "junk", &err), TU_EMISSING, "what does not load: %s",
           err.msg);
}

static void test_loaded(void)
{
    const struct tu_plugin *p, *again;
    struct tu_err err;
    bool built = build("one.so", "TU_PLUGIN_ABI",
                       "int *p = h->alloc(1, sizeof *p, e);"
                       "if (!p) return e->code;"
                       "number = *p = 1;"
                       "h->free(p);"
                       "return h->clock() > 0 ? 0 : fail(h, e, \"clock\");");
    built = built && build("old.so", "TU_PLUGIN_ABI + 1", "return 0;");
    built = built && build("bad.so", "TU_PLUGIN_ABI",
                           "return fail(h, e, \"no %s\", \"device\");");
    if (!built) {
        tap_skip("loading", "cc does not build a shared object here");
        return;
    }
    eq_int(tu_plugin_load(&p, "one", &err), 0, "load: %s", err.code ? err.msg : "");
    if (p) {
        eq_str(p->kind, "number", "its kind");
        eq_int(*(const int *)p->table, 1, "its table, made with the host's functions");
    }
    eq_int(tu_plugin_load(&again, "one", NULL), 0, "load again");
    ok(p == again, "is the same");
    eq_int(tu_plugin_load(&p, "old", &err), TU_EVERSION, "another interface");
    eq_str(err.msg, "./libtensorutils-old.so: plug-in interface 2, this program has 1", "its message");
    eq_int(tu_plugin_load(&p, "bad", &err), TU_ENODEV, "one that does not start");
    eq_str(err.msg, "plug-in 'one': no device", "its message");
    int left = system("cc -shared -o libtensorutils-none.so -x c - </dev/null");
    if (left == 0)
        eq_int(tu_plugin_load(&p, "none", &err), TU_EVERSION, "no table: %s", err.msg);
    const char *const folder[] = {".", ".", "absent", NULL};
    eq_int(tu_plugin_path(folder, NULL), 0, "folders set again");
    static const char *const name[] = {"bad", "junk", "none", "old", "one"};
    for (size_t i = 0; i < 5; i++)
        eq_str(tu_plugin_name(i), name[i], "name %zu", i);
    ok(tu_plugin_name(5) == NULL, "no more names");
}

static void test_memory(void)
{
    const char *const folder[] = {".", NULL};
    const struct tu_plugin *p;
    int code;
    uint64_t n = 1;
    for (; n < 20; n++) {
        tu_mem_inject(n, 0);
        code = tu_plugin_path(folder, NULL);
        code = code ? code : tu_plugin_load(&p, "junk", NULL);
        tu_plugin_name(0);
        if (code == TU_EMISSING)
            break;
        eq_int(code, TU_ENOMEM, "allocation %d fails", (int)n);
    }
    tu_mem_inject(0, 0);
    ok(n > 3 && n < 20, "until all succeed");
}

int main(void)
{
    if (!getcwd(include_dir, sizeof include_dir - 5))
        return 99;
    strcat(include_dir, "/lib");
    scratch_enter();
    test_absent();
    test_loaded();
    test_memory();
    scratch_leave();
    return tap_done();
}
