/* SPDX-License-Identifier: Apache-2.0 */
/* Error codes as the manual lists them, and messages that stay one clean line. */
#include <errno.h>
#include "../tap.h"
#include "tensorutils/core/err.h"

static const struct {
    int code;
    const char *name;
    int status;
} code[] = {
    {TU_OK, "TU_OK", 0},
    {TU_EDIFFER, "TU_EDIFFER", 1},
    {TU_EUSAGE, "TU_EUSAGE", 2},
    {TU_EEXISTS, "TU_EEXISTS", 2},
    {TU_EEMPTY, "TU_EEMPTY", 3},
    {TU_ETRUNC, "TU_ETRUNC", 3},
    {TU_ENOEND, "TU_ENOEND", 3},
    {TU_EMAGIC, "TU_EMAGIC", 3},
    {TU_EVERSION, "TU_EVERSION", 3},
    {TU_EHEADER, "TU_EHEADER", 3},
    {TU_ELIMIT, "TU_ELIMIT", 3},
    {TU_EHCRC, "TU_EHCRC", 3},
    {TU_ESIZE, "TU_ESIZE", 3},
    {TU_ETYPE, "TU_ETYPE", 3},
    {TU_EFLAG, "TU_EFLAG", 3},
    {TU_ECODEC, "TU_ECODEC", 3},
    {TU_EDTYPE, "TU_EDTYPE", 3},
    {TU_ENAME, "TU_ENAME", 3},
    {TU_EPCRC, "TU_EPCRC", 3},
    {TU_EPAD, "TU_EPAD", 3},
    {TU_EFRAME, "TU_EFRAME", 3},
    {TU_EEND, "TU_EEND", 3},
    {TU_EGARBAGE, "TU_EGARBAGE", 3},
    {TU_EMETA, "TU_EMETA", 3},
    {TU_ESHARD, "TU_ESHARD", 3},
    {TU_EINDEX, "TU_EINDEX", 3},
    {TU_EFORMAT, "TU_EFORMAT", 3},
    {TU_EUNSUP, "TU_EUNSUP", 3},
    {TU_EINCOMPLETE, "TU_EINCOMPLETE", 3},
    {TU_EIO, "TU_EIO", 4},
    {TU_ENOMEM, "TU_ENOMEM", 4},
    {TU_ENODEV, "TU_ENODEV", 4},
    {TU_EMISSING, "TU_EMISSING", 4},
    {TU_EPEER, "TU_EPEER", 4},
    {TU_ETIMEOUT, "TU_ETIMEOUT", 4},
    {TU_ECANCEL, "TU_ECANCEL", 4},
    {TU_EBUG, "TU_EBUG", 4},
};

static void test_codes(void)
{
    size_t n = 1;
#define COUNT(name, status, help) n++;
    TU_ERR_TABLE(COUNT)
#undef COUNT
    eq_u64(sizeof code / sizeof *code, n, "every code is tested");
    for (size_t i = 0; i < sizeof code / sizeof *code; i++) {
        eq_str(tu_err_name(code[i].code), code[i].name, "name of %s", code[i].name);
        eq_int(tu_err_status(code[i].code), code[i].status, "status of %s", code[i].name);
        ok(i == 0 ? code[i].code == 0 : code[i].code < 0, "%s is negative", code[i].name);
    }
    eq_str(tu_err_name(-1000), "TU_E?", "no such code");
    eq_str(tu_err_name(7), "TU_E?", "a positive number is no code");
    eq_int(tu_err_status(INT32_MIN), 4, "an unknown code is the environment's fault");
}

static void test_messages(void)
{
    struct tu_err err;
    eq_int(tu_fail(&err, TU_ENAME, "x.tns: name '%s': bad", "q"), TU_ENAME,
           "tu_fail returns");
    eq_str(err.msg, "x.tns: name 'q': bad", "message");
    eq_int(err.sys, 0, "no errno");
    eq_u64(err.offset, TU_ERR_NO_OFFSET, "no offset");
    eq_int(tu_fail_at(&err, TU_EPAD, 133, "padding"), TU_EPAD, "tu_fail_at returns");
    eq_u64(err.offset, 133, "offset");
    errno = ENOENT;
    eq_int(tu_fail_errno(&err, "%s: cannot open", "f"), TU_EIO, "tu_fail_errno returns");
    eq_str(err.msg, "f: cannot open: No such file or directory", "text of errno");
    eq_int(err.sys, ENOENT, "errno kept");
    tu_err_prefix(&err, "set %d", 3);
    eq_int(err.code, TU_EIO, "tu_err_prefix keeps the code");
    eq_str(err.msg, "set 3: f: cannot open: No such file or directory", "prefix");
    tu_err_prefix(&err, "%s", "f");
    tu_err_prefix(&err, "set 3");
    eq_str(err.msg, "set 3: f: cannot open: No such file or directory", "a subject is named once");
    tu_err_prefix(&err, "cannot");
    eq_str(err.msg, "cannot: set 3: f: cannot open: No such file or directory", "whole subjects");
    eq_int(tu_fail(NULL, TU_EIO, "x"), TU_EIO, "NULL err");
    errno = EIO;
    eq_int(tu_fail_errno(NULL, "x"), TU_EIO, "NULL err with errno");
    tu_err_prefix(NULL, "x");
}

static void test_clean(void)
{
    struct tu_err err;
    tu_fail(&err, TU_ENAME, "name 'a\nb\x1b[1m\x7f'");
    eq_str(err.msg, "name 'a?b?[1m?'", "control bytes become ?");
    tu_fail(&err, TU_EIO, "one");
    tu_fail(&err, TU_EIO, "two: %s", err.msg);
    eq_str(err.msg, "two: one", "an argument may be the old message");

    char text[400];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    tu_fail(&err, TU_EIO, "%s", text);
    eq_u64(strlen(err.msg), 255, "cut at 255 bytes");
    memcpy(text + 253, "\xe2\x82\xac", 3); /* a euro sign over the cut */
    tu_fail(&err, TU_EIO, "%s", text);
    eq_u64(strlen(err.msg), 253, "never cut inside a character");
    tu_err_prefix(&err, "%s", text);
    eq_u64(strlen(err.msg), 253, "nor by a long prefix");
    memset(text, 'b', sizeof text - 1);
    errno = EIO;
    tu_fail_errno(&err, "%s%s", text, text);
    eq_u64(strlen(err.msg), 255, "a text that leaves no room for errno");
}

int main(void)
{
    test_codes();
    test_messages();
    test_clean();
    return tap_done();
}
