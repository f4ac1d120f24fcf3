/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c: a tokenizer's keys in GGUF from small tokenizer.json files, right, odd and
 * wrong. What is expected is what gguf-py's vocab.py and llama.cpp's conversion write for
 * such files. */
#include <jansson.h>
#include <stdlib.h>
#include "../tap.h"
#include "model/gguf.h"

/* ' stands for " in all texts. */
static json_t *quoted(const char *text)
{
    char out[2048];
    size_t i;
    for (i = 0; text[i] && i + 1 < sizeof out; i++)
        out[i] = text[i] == '\'' ? '"' : text[i];
    out[i] = 0;
    return json_string(out);
}

static char got[8192];

static int tokens_of(const char *tokenizer, const char *words, const char *config,
                     const char *jinja, uint64_t rows, bool *found, struct tu_err *err)
{
    const struct tu_model m = {.vocab = rows};
    json_t *files = json_object(), *kv = json_object();
    struct tu_buf b = {0};
    *err = (struct tu_err){0};
    if (tokenizer)
        json_object_set_new(files, "tokenizer.json", quoted(tokenizer));
    if (words)
        json_object_set_new(files, "tokenizer_config.json", quoted(words));
    if (config)
        json_object_set_new(files, "config.json", quoted(config));
    if (jinja)
        json_object_set_new(files, "chat_template.jinja", quoted(jinja));
    int rc = tui_gguf_tokens(kv, &m, files, found, err);
    if (!rc && tu_json_dump(&b, kv, NULL))
        abort();
    size_t i = 0;
    for (; !rc && b.data[i] && i + 1 < sizeof got; i++)
        got[i] = b.data[i] == '"' ? '\'' : b.data[i];
    got[i] = 0;
    if (rc)
        snprintf(got, sizeof got, "%s", err->msg);
    tu_buf_release(&b);
    json_decref(files);
    json_decref(kv);
    return rc;
}

#define BPE(vocab, merges, rest)                                                         \
    "{'model':{'type':'BPE','vocab':{" vocab "},'merges':[" merges "]}" rest "}"
#define LLAMA(vocab, merges, rest)                                                       \
    "{'model':{'type':'BPE','byte_fallback':true,'vocab':{" vocab "},'merges':[" merges  \
    "]}" rest "}"
#define AB "'a':0,'b':1,'ab':2"
#define ADDED(list) ",'added_tokens':[" list "]"
#define EOS "{'id':3,'content':'<end>','special':true}"
#define PRE(text) ",'pre_tokenizer':" text
#define REGEX(text) "{'type':'Split','pattern':{'Regex':'" text "'}}"

static const struct {
    const char *tokenizer, *words, *config, *jinja;
    uint64_t rows;
    int code;
    const char *there; /* in the keys, or in the message */
} rows[] = {
    /* Tokens, their types and ids. */
    {BPE(AB, "'a b'", ""), NULL, NULL, NULL, 0, 0,
     "'tokenizer.ggml.tokens':[9,[8,['a','b','ab']]]"},
    {BPE(AB, "'a b'", ""), NULL, NULL, NULL, 0, 0,
     "'tokenizer.ggml.token_type':[9,[5,[1,1,1]]]"},
    {BPE(AB, "'a b'", ""), NULL, NULL, NULL, 0, 0,
     "'tokenizer.ggml.merges':[9,[8,['a b']]]"},
    {BPE(AB, "'a b'", ""), NULL, NULL, NULL, 5, 0, "['a','b','ab','[PAD3]','[PAD4]']"},
    {BPE(AB, "'a b'", ""), NULL, NULL, NULL, 5, 0,
     "'tokenizer.ggml.token_type':[9,[5,[1,1,1,5,5]]]"},
    {BPE(AB, "'a b'", ADDED(EOS)), NULL, NULL, NULL, 0, 0, "[5,[1,1,1,3]]"},
    {BPE(AB, "", ADDED("{'id':3,'content':'own'}")), NULL, NULL, NULL, 0, 0,
     "[5,[1,1,1,4]]"},
    {BPE(AB, "", ADDED("{'id':3,'content':'<pad>'}")), NULL, NULL, NULL, 0, 0,
     "[5,[1,1,1,3]]"},
    {BPE(AB, "", ADDED("{'id':3,'content':'<mask>'}")), NULL, NULL, NULL, 0, 0,
     "[5,[1,1,1,3]]"},
    {BPE(AB, "", ADDED("{'id':3,'content':'<|im|>'}")), NULL, NULL, NULL, 0, 0,
     "[5,[1,1,1,3]]"},
    {BPE(AB, "", ADDED("{'id':3,'content':'<|im>'}")), NULL, NULL, NULL, 0, 0,
     "[5,[1,1,1,4]]"},
    {BPE(AB, "", ADDED("{'id':3,'content':'<|>'}")), NULL, NULL, NULL, 0, 0,
     "[5,[1,1,1,4]]"},
    {BPE(AB, "", ADDED("{'id':3,'content':'\xe2\x96\x81x\xe2\x96\x81'}")), NULL, NULL,
     NULL, 0, 0, "'ab',' x ']"},
    {BPE(AB, "", ADDED("{'content':'x'}")), NULL, NULL, NULL, 0, TU_EFORMAT,
     "without content or id"},
    {BPE(AB, "", ADDED("{'id':3}")), NULL, NULL, NULL, 0, TU_EFORMAT,
     "without content or id"},
    {BPE(AB, "", ADDED("{'id':-1,'content':'x'}")), NULL, NULL, NULL, 0, TU_EFORMAT,
     "without content or id"},
    {BPE(AB, "", ADDED("{'id':9,'content':'x'}")), NULL, NULL, NULL, 4, TU_EFORMAT,
     "'x' has id 9 of 4"},
    {BPE(AB, "", ""), NULL, NULL, NULL, 2, TU_EFORMAT, "'ab' has id 2 of 2"},
    {BPE("'a':-1", "", ""), NULL, NULL, NULL, 3, TU_EFORMAT, "'a' has id"},
    {BPE("'a':'0'", "", ""), NULL, NULL, NULL, 3, TU_EFORMAT,
     "'a' has no whole number as id"},
    {BPE("'a':1.5", "", ""), NULL, NULL, NULL, 3, TU_EFORMAT,
     "'a' has no whole number as id"},
    {BPE("'a':900000000000", "", ""), NULL, NULL, NULL, 0, TU_EFORMAT,
     "'a' has id 900000000000 of 0"},
    /* Merges. */
    {BPE(AB, "['a','b']", ""), NULL, NULL, NULL, 0, 0, "merges':[9,[8,['a b']]]"},
    {BPE(AB, "['a ','b']", ""), NULL, NULL, NULL, 0, 0,
     "merges':[9,[8,['a\xc4\xa0 b']]]"},
    {BPE(AB, "['a']", ""), NULL, NULL, NULL, 0, TU_EFORMAT, "merge 0 is no pair"},
    {BPE(AB, "['a','b','c']", ""), NULL, NULL, NULL, 0, TU_EFORMAT, "merge 0 is no pair"},
    {BPE(AB, "'a b',['a',1]", ""), NULL, NULL, NULL, 0, TU_EFORMAT, "merge 1 is no pair"},
    {BPE(AB, "[1,'a']", ""), NULL, NULL, NULL, 0, TU_EFORMAT, "merge 0 is no pair"},
    {BPE(AB, "7", ""), NULL, NULL, NULL, 0, TU_EFORMAT, "merge 0 is no pair"},
    /* Characters with bytes behind them: scores. */
    {LLAMA(AB, "'a b'", ""), NULL, NULL, NULL, 0, 0,
     "'tokenizer.ggml.model':[8,'llama']"},
    {LLAMA(AB, "'a b'", ""), NULL, NULL, NULL, 0, 0,
     "scores':[9,[6,[-10000.0,-10000.0,-0.0]]]"},
    {LLAMA(AB, "'a b',['a','b'],'b a'", ""), NULL, NULL, NULL, 0, 0,
     "[-10000.0,-10000.0,-0.0]"},
    {LLAMA(AB, "'b a',['a','b']", ""), NULL, NULL, NULL, 0, 0,
     "[-10000.0,-10000.0,-1.0]"},
    {LLAMA("'<unk>':0,'<0x0A>':1,'<0xfF>':2", "", ""), NULL, NULL, NULL, 0, 0,
     "[5,[2,6,6]]"},
    {LLAMA("'<0x-1>':0,'<0x 1>':1,'<0x0G>':2,'<0x0A>>':3,'<0x0A':4", "", ""), NULL, NULL,
     NULL, 0, 0, "[5,[1,1,1,1,1]]"},
    {BPE("'<unk>':0,'<0x0A>':1", "", ""), NULL, NULL, NULL, 0, 0, "[5,[1,1]]"},
    {LLAMA(AB, "'ab'", ""), NULL, NULL, NULL, 0, TU_EFORMAT, "merge 0 is no pair"},
    {LLAMA(AB, "['a']", ""), NULL, NULL, NULL, 0, TU_EFORMAT, "merge 0 is no pair"},
    {LLAMA(AB, "'a b',3", ""), NULL, NULL, NULL, 0, TU_EFORMAT, "merge 1 is no pair"},
    /* Pre-tokenizers. */
    {BPE(AB, "", ""), NULL, NULL, NULL, 0, 0, "'tokenizer.ggml.pre':[8,'gpt-2']"},
    {BPE(AB, "", PRE(REGEX("x"))), NULL, NULL, NULL, 0, 0, "pre':[8,'default']"},
    {BPE(AB, "",
         PRE("{'pretokenizers':[{'type':'Digits'}," REGEX("x") "," REGEX("y") "]}")),
     NULL, NULL, NULL, 0, 0, "pre':[8,'default']"},
    {BPE(AB, "", PRE(REGEX("\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*"))),
     NULL, NULL, NULL, 0, 0, "pre':[8,'llama-bpe']"},
    {BPE(AB, "", PRE(REGEX("\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*"))),
     NULL, NULL, NULL, 0, 0, "pre':[8,'gpt-4o']"},
    {BPE(AB, "",
         PRE("{'pretokenizers':[" REGEX(
             "\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*") "]}")),
     NULL, NULL, NULL, 0, 0, "pre':[8,'qwen2']"},
    {LLAMA(AB, "", PRE(REGEX("x"))), NULL, NULL, NULL, 0, 0, "pre':[8,'default']"},
    /* Special tokens: by content, by an object with it, by number, by the first of many.
     */
    {BPE(AB, "", ADDED(EOS)), "{'eos_token':'<end>'}", NULL, NULL, 0, 0,
     "eos_token_id':[4,3]"},
    {BPE(AB, "", ADDED(EOS)), "{'eos_token':{'content':'<end>'}}", NULL, NULL, 0, 0,
     "eos_token_id':[4,3]"},
    {BPE(AB, "", ADDED(EOS)), "{'eos_token':'<no>'}", "{'eos_token_id':1}", NULL, 0, 0,
     "eos_token_id':[4,1]"},
    {BPE(AB, "", ADDED(EOS)), NULL, "{'eos_token_id':[2,1]}", NULL, 0, 0,
     "eos_token_id':[4,2]"},
    {BPE(AB, "", ADDED(EOS)), NULL, "{'pad_token_id':0}", NULL, 0, 0,
     "padding_token_id':[4,0]"},
    {BPE(AB, "", ADDED(EOS)), "{'eos_token':'<end>','add_eos_token':true}", NULL, NULL, 0,
     0, "'tokenizer.ggml.add_eos_token':[7,true]"},
    {BPE(AB, "", ADDED(EOS)), "{'bos_token':'<end>','add_bos_token':false}", NULL, NULL,
     0, 0, "'tokenizer.ggml.add_bos_token':[7,false]"},
    {BPE(AB, "",
         ADDED(EOS) ",'post_processor':{'single':[{'SpecialToken':{'id':'<end>'}},{}]}"),
     "{'bos_token':'<end>'}", NULL, NULL, 0, 0, "add_bos_token':[7,true]"},
    {BPE(AB, "",
         ADDED(EOS) ",'post_processor':{'processors':[{'type':'ByteLevel'},{},{'type':"
                    "'TemplateProcessing','single':[{},{'SpecialToken':{'id':'<end>'}}]}]"
                    "}"),
     "{'eos_token':'<end>'}", NULL, NULL, 0, 0, "add_eos_token':[7,true]"},
    {BPE(AB, "", ""), "{'chat_template':'{{x}}'}", NULL, NULL, 0, 0,
     "chat_template':[8,'{{x}}']"},
    {BPE(AB, "", ""), "{'chat_template':'{{x}}'}", NULL, "{{y}}", 0, 0,
     "chat_template':[8,'{{y}}']"},
    /* Files that are none. */
    {"{", NULL, NULL, NULL, 0, TU_EMETA, "tokenizer.json: "},
    {"[]", NULL, NULL, NULL, 0, TU_EMETA, "tokenizer.json: "},
    {BPE(AB, "", ""), "{", NULL, NULL, 0, TU_EMETA, "tokenizer_config.json: "},
    {BPE(AB, "", ""), NULL, "nothing", NULL, 0, TU_EMETA, "config.json: "},
};

/* What must not be written. */
static const struct {
    const char *tokenizer, *words, *config, *absent;
} without[] = {
    {BPE(AB, "", ""), "{'chat_template':[1]}", NULL, "chat_template"},
    {BPE(AB, "", ""), NULL, "{'eos_token_id':3}", "eos_token_id"},
    {BPE(AB, "", ""), NULL, "{'eos_token_id':-1}", "eos_token_id"},
    {BPE(AB, "", ""), NULL, "{'eos_token_id':5000000000}", "eos_token_id"},
    {BPE(AB, "", ""), NULL, "{'eos_token_id':'b'}", "eos_token_id"},
    {BPE(AB, "", ADDED(EOS)), "{'eos_token':'<end>'}", NULL, "add_eos_token"},
    {BPE(AB, "",
         ADDED(EOS) ",'post_processor':{'single':[{'SpecialToken':{'id':'<no>'}}]}"),
     "{'eos_token':'<end>'}", NULL, "add_eos_token"},
    {BPE(AB, "",
         ADDED(EOS) ",'post_processor':{'single':[{'SpecialToken':{'id':'<end>'}},{}]}"),
     "{'eos_token':'<end>'}", NULL, "add_eos_token"},
};

/* Tokenizers of a kind that has no keys. */
static const char *const others[] = {
    NULL,
    "{}",
    "{'model':{}}",
    "{'model':{'type':3}}",
    "{'model':{'type':'Unigram','vocab':[]}}",
    "{'model':{'type':'WordPiece','vocab':{'a':0}}}",
};

int main(void)
{
    struct tu_err err;
    bool found;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = tokens_of(rows[i].tokenizer, rows[i].words, rows[i].config,
                           rows[i].jinja, rows[i].rows, &found, &err);
        bool well = rc == rows[i].code && strstr(got, rows[i].there) && found == !rc;
        ok(well, "%zu: %s", i, rows[i].there);
        if (!well)
            printf("# %s gives %s\n", rows[i].tokenizer, got);
    }
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        int rc = tokens_of(without[i].tokenizer, without[i].words, without[i].config,
                           NULL, 0, &found, &err);
        ok(!rc && found && !strstr(got, without[i].absent), "%zu: no %s", i,
           without[i].absent);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        int rc = tokens_of(others[i], NULL, NULL, NULL, 0, &found, &err);
        ok(!rc && !found && !strcmp(got, "{}"), "%s has no keys",
           others[i] ? others[i] : "nothing");
    }
    ok(!tokens_of(BPE(AB, "", ""), NULL, NULL, NULL, UINT64_C(1) << 40, &found, &err) &&
           !found,
       "a size that no vocabulary has");
    return tap_done();
}
