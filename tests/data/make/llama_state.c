/* SPDX-License-Identifier: Apache-2.0 */
/* llama_state.c: tests/data/kv by llama.cpp itself, and the proof that it goes on from a
 * file of ours with the same tokens.
 *
 *     llama_state MODEL save|load FILE K-TYPE V-TYPE FLASH [seq|session]
 *
 * save: decode 21 tokens and save the state; load: begin with a saved one. Both then print
 * the 12 greedy tokens that follow, with their logits. Built with
 *     cc llama_state.c -I$LLAMA_CPP/include -I$LLAMA_CPP/ggml/include -lllama -lggml -lggml-base
 * MODEL is gguf/hf/llama.gguf; for q8_0 and "wide" a random one with heads of 64 columns. */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 21, MORE = 12 };

static enum ggml_type type_of(const char *s)
{
    return !strcmp(s, "f32")    ? GGML_TYPE_F32
           : !strcmp(s, "q4_0") ? GGML_TYPE_Q4_0
           : !strcmp(s, "q8_0") ? GGML_TYPE_Q8_0
           : !strcmp(s, "bf16") ? GGML_TYPE_BF16
                                : GGML_TYPE_F16;
}

static void quiet(enum ggml_log_level level, const char *text, void *ctx)
{
    (void)ctx;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static int go_on(struct llama_context *x, int vocab)
{
    llama_token t = 9;
    for (int i = 0; i < MORE; i++) {
        if (llama_decode(x, llama_batch_get_one(&t, 1)))
            return 1;
        const float *logit = llama_get_logits_ith(x, -1);
        int best = 0;
        for (int k = 1; k < vocab; k++)
            best = logit[k] > logit[best] ? k : best;
        printf("%d:%.6g ", best, (double)logit[best]);
        t = best;
    }
    puts("");
    return 0;
}

int main(int argc, char **argv)
{
    llama_token tok[TOKENS], got[64];
    size_t n = 0;
    if (argc < 7)
        return 2;
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model *m = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!m)
        return 1;
    int vocab = llama_vocab_n_tokens(llama_model_get_vocab(m));
    for (int i = 0; i < TOKENS; i++)
        tok[i] = (i * 37 + 5) % (vocab - 8) + 3;
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = 64;
    p.n_threads = p.n_threads_batch = 1;
    p.type_k = type_of(argv[4]);
    p.type_v = type_of(argv[5]);
    p.flash_attn_type = atoi(argv[6]) ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                                      : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *x = llama_init_from_model(m, p);
    if (!x)
        return 1;
    int session = argc > 7 && !strcmp(argv[7], "session"), good;
    if (!strcmp(argv[2], "save"))
        good = !llama_decode(x, llama_batch_get_one(tok, TOKENS)) &&
               (session ? llama_state_save_file(x, argv[3], tok, TOKENS)
                        : llama_state_seq_save_file(x, argv[3], 0, tok, TOKENS) > 0);
    else
        good = (session ? llama_state_load_file(x, argv[3], got, 64, &n)
                        : llama_state_seq_load_file(x, argv[3], 0, got, 64, &n) > 0) &&
               n == TOKENS && !memcmp(got, tok, sizeof tok);
    good = good && !go_on(x, vocab);
    llama_free(x);
    llama_model_free(m);
    return !good;
}
