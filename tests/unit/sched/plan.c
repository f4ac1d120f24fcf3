/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: sizes of models, throughput and activation figures of the literature; overlap
 * forms. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../tap.h"
#include "sched/plan_stage.h"

/* A GPT as in Megatron-LM: biases, learned positions, tied head. */
static struct tu_model gpt(uint64_t l, uint64_t h, uint64_t a, uint64_t v, uint64_t s)
{
    return (struct tu_model){.layers = l,
                             .hidden = h,
                             .heads = a,
                             .kv_heads = a,
                             .head_dim = h / a,
                             .ffn = 4 * h,
                             .vocab = v,
                             .positions = s,
                             .tied = true,
                             .learned_positions = true,
                             .bias = true};
}

/* a, h, l, n, B, TF/GPU; parameters in 1e9, aggregate PF, seconds. */
static const struct {
    double a, h, l, n, batch, tf, params, pf, step;
} table[] = {
    {24, 2304, 24, 32, 512, 137, 1.652, 4.4, 3.53},
    {32, 3072, 30, 64, 512, 138, 3.562, 8.8, 3.70},
    {32, 4096, 36, 128, 512, 142, 7.468, 18.2, 3.70},
    {48, 6144, 40, 256, 1024, 135, 18.450, 34.6, 9.40},
    {64, 8192, 48, 512, 1536, 138, 39.096, 70.8, 14.45},
    {80, 10240, 60, 1024, 1792, 140, 76.051, 143.8, 16.06},
    {96, 12288, 80, 1536, 2304, 148, 145.622, 227.1, 24.82},
    {128, 16384, 96, 1920, 2160, 155, 310.131, 297.4, 37.61},
    {128, 20480, 105, 2520, 2520, 163, 529.601, 410.2, 54.08},
    {160, 25600, 128, 3072, 3072, 163, 1008.039, 502.0, 102.63},
};

/* Parameters that transformers 5.24.0 builds for these configurations, without what predicts
 * further tokens; ' for ". */
static const struct {
    double params;
    const char *config;
} families[] = {
    {671026404352.0,
     "{'model_type':'deepseek_v3','num_hidden_layers':61,'hidden_size':7"
     "168,'intermediate_size':18432,'moe_intermediate_size':2048,'num_at"
     "tention_heads':128,'num_key_value_heads':128,'n_routed_experts':25"
     "6,'n_shared_experts':1,'num_experts_per_tok':8,'first_k_dense_repl"
     "ace':3,'q_lora_rank':1536,'kv_lora_rank':512,'qk_nope_head_dim':12"
     "8,'qk_rope_head_dim':64,'v_head_dim':128,'vocab_size':129280,'tie_"
     "word_embeddings':false}"},
    {1026408209408.0,
     "{'model_type':'kimi_k2','num_hidden_layers':61,'hidden_size':7168,"
     "'intermediate_size':18432,'moe_intermediate_size':2048,'num_attent"
     "ion_heads':64,'num_key_value_heads':64,'n_routed_experts':384,'n_s"
     "hared_experts':1,'num_experts_per_tok':8,'first_k_dense_replace':1"
     ",'q_lora_rank':1536,'kv_lora_rank':512,'qk_nope_head_dim':128,'qk_"
     "rope_head_dim':64,'v_head_dim':128,'vocab_size':163840,'tie_word_e"
     "mbeddings':false,'n_group':1,'topk_group':1}"},
    {15706484224.0,
     "{'model_type':'deepseek_v2','num_hidden_layers':27,'hidden_size':2"
     "048,'intermediate_size':10944,'moe_intermediate_size':1408,'num_at"
     "tention_heads':16,'num_key_value_heads':16,'n_routed_experts':64,'"
     "n_shared_experts':2,'num_experts_per_tok':6,'first_k_dense_replace"
     "':1,'q_lora_rank':null,'kv_lora_rank':512,'qk_nope_head_dim':128,'"
     "qk_rope_head_dim':64,'v_head_dim':128,'vocab_size':102400,'tie_wor"
     "d_embeddings':false}"},
    {34980831232.0,
     "{'model_type':'cohere','vocab_size':256000,'hidden_size':8192,'int"
     "ermediate_size':22528,'num_hidden_layers':40,'num_attention_heads'"
     ":64,'num_key_value_heads':64,'tie_word_embeddings':true}"},
    {8028033024.0,
     "{'model_type':'cohere2','vocab_size':256000,'hidden_size':4096,'in"
     "termediate_size':14336,'num_hidden_layers':32,'num_attention_heads"
     "':32,'num_key_value_heads':8,'head_dim':128,'tie_word_embeddings':"
     "true}"},
    {352797814784.0,
     "{'model_type':'glm4_moe','vocab_size':151552,'hidden_size':5120,'i"
     "ntermediate_size':12288,'moe_intermediate_size':1536,'num_hidden_l"
     "ayers':92,'num_attention_heads':96,'num_key_value_heads':8,'head_d"
     "im':128,'n_routed_experts':160,'n_shared_experts':1,'num_experts_p"
     "er_tok':8,'first_k_dense_replace':3,'attention_bias':true,'use_qk_"
     "norm':true,'tie_word_embeddings':false}"},
    {9241705984.0,
     "{'model_type':'gemma2','num_hidden_layers':42,'hidden_size':3584,'"
     "intermediate_size':14336,'num_attention_heads':16,'num_key_value_h"
     "eads':8,'head_dim':256,'vocab_size':256000}"},
    {3880263168.0,
     "{'model_type':'gemma3_text','num_hidden_layers':34,'hidden_size':2"
     "560,'intermediate_size':10240,'num_attention_heads':8,'num_key_val"
     "ue_heads':4,'head_dim':256,'vocab_size':262208}"},
    {20914757184.0,
     "{'model_type':'gpt_oss','num_hidden_layers':24,'hidden_size':2880,"
     "'intermediate_size':2880,'num_attention_heads':64,'num_key_value_h"
     "eads':8,'head_dim':64,'num_local_experts':32,'num_experts_per_tok'"
     ":4,'vocab_size':201088,'attention_bias':true,'tie_word_embeddings'"
     ":false}"},
    {30532122624.0,
     "{'model_type':'qwen3_moe','num_hidden_layers':48,'hidden_size':204"
     "8,'intermediate_size':6144,'moe_intermediate_size':768,'num_attent"
     "ion_heads':32,'num_key_value_heads':4,'head_dim':128,'num_experts'"
     ":128,'num_experts_per_tok':8,'vocab_size':151936,'tie_word_embeddi"
     "ngs':false}"},
    {3821079552.0,
     "{'model_type':'phi3','num_hidden_layers':32,'hidden_size':3072,'in"
     "termediate_size':8192,'num_attention_heads':32,'num_key_value_head"
     "s':32,'vocab_size':32064,'tie_word_embeddings':false,'pad_token_id"
     "':32000}"},
    {9400279040.0,
     "{'model_type':'glm4','num_hidden_layers':40,'hidden_size':4096,'in"
     "termediate_size':13696,'num_attention_heads':32,'num_key_value_hea"
     "ds':2,'head_dim':128,'vocab_size':151552,'attention_bias':true,'ti"
     "e_word_embeddings':false}"},
    {8030261248.0,
     "{'model_type':'llama','num_hidden_layers':32,'hidden_size':4096,'i"
     "ntermediate_size':14336,'num_attention_heads':32,'num_key_value_he"
     "ads':8,'vocab_size':128256,'tie_word_embeddings':false}"},
    {46702792704.0,
     "{'model_type':'mixtral','num_hidden_layers':32,'hidden_size':4096,"
     "'intermediate_size':14336,'num_attention_heads':32,'num_key_value_"
     "heads':8,'vocab_size':32000,'num_local_experts':8,'num_experts_per"
     "_tok':2,'tie_word_embeddings':false}"},
    {7615616512.0,
     "{'model_type':'qwen2','num_hidden_layers':28,'hidden_size':3584,'i"
     "ntermediate_size':18944,'num_attention_heads':28,'num_key_value_he"
     "ads':4,'vocab_size':152064,'tie_word_embeddings':false}"},
    {107769861120.0,
     "{'model_type':'llama4_text','hidden_size':5120,'intermediate_size':"
     "8192,'intermediate_size_mlp':16384,'num_hidden_layers':48,'num_atte"
     "ntion_heads':40,'num_key_value_heads':8,'head_dim':128,'vocab_size'"
     ":202048,'num_experts_per_tok':1,'use_qk_norm':true,'tie_word_embedd"
     "ings':false,'num_local_experts':16,'interleave_moe_layer_step':1}"},
    {400711848960.0,
     "{'model_type':'llama4_text','hidden_size':5120,'intermediate_size':"
     "8192,'intermediate_size_mlp':16384,'num_hidden_layers':48,'num_atte"
     "ntion_heads':40,'num_key_value_heads':8,'head_dim':128,'vocab_size'"
     ":202048,'num_experts_per_tok':1,'use_qk_norm':false,'tie_word_embed"
     "dings':false,'num_local_experts':128,'interleave_moe_layer_step':2}"},
    {79674391296.0,
     "{'model_type':'qwen3_next','hidden_size':2048,'intermediate_size':5"
     "120,'num_hidden_layers':48,'num_attention_heads':16,'num_key_value_"
     "heads':2,'head_dim':256,'vocab_size':151936,'num_experts':512,'num_"
     "experts_per_tok':10,'moe_intermediate_size':512,'shared_expert_inte"
     "rmediate_size':512,'linear_conv_kernel_dim':4,'linear_key_head_dim'"
     ":128,'linear_num_key_heads':16,'linear_num_value_heads':32,'linear_"
     "value_head_dim':128,'tie_word_embeddings':false}"},
    {32234279936.0,
     "{'model_type':'olmo2','hidden_size':5120,'intermediate_size':27648,"
     "'num_hidden_layers':64,'num_attention_heads':40,'num_key_value_head"
     "s':8,'vocab_size':100352,'tie_word_embeddings':false}"},
    {7298011136.0,
     "{'model_type':'olmo3','hidden_size':4096,'intermediate_size':11008,"
     "'num_hidden_layers':32,'num_attention_heads':32,'num_key_value_head"
     "s':32,'vocab_size':100278,'sliding_window':4096,'tie_word_embedding"
     "s':false}"},
    {6919161856.0,
     "{'model_type':'olmoe','hidden_size':2048,'intermediate_size':1024,'"
     "num_hidden_layers':16,'num_attention_heads':16,'num_key_value_heads"
     "':16,'vocab_size':50304,'num_experts':64,'num_experts_per_tok':8,'t"
     "ie_word_embeddings':false}"},
    {103810674688.0,
     "{'model_type':'cohere','vocab_size':256000,'hidden_size':12288,'int"
     "ermediate_size':33792,'num_hidden_layers':64,'num_attention_heads':"
     "96,'num_key_value_heads':8,'use_qk_norm':true,'tie_word_embeddings'"
     ":true}"},
    {14315784192.0,
     "{'model_type':'qwen2_moe','vocab_size':151936,'hidden_size':2048,'i"
     "ntermediate_size':5632,'num_hidden_layers':24,'num_attention_heads'"
     ":16,'num_key_value_heads':16,'num_experts':60,'num_experts_per_tok'"
     ":4,'moe_intermediate_size':1408,'shared_expert_intermediate_size':5"
     "632,'tie_word_embeddings':false}"},
    {124439808.0,
     "{'model_type':'gpt2','n_layer':12,'n_embd':768,'n_head':12,'vocab_"
     "size':50257,'n_positions':1024}"},
    {2506172416.0,
     "{'model_type':'gemma','vocab_size':256000,'hidden_size':2048,"
     "'intermediate_size':16384,'num_hidden_layers':18,"
     "'num_attention_heads':8,'num_key_value_heads':1,'head_dim':256,"
     "'tie_word_embeddings':true,'attention_bias':false}"},
    {8537680896.0,
     "{'model_type':'gemma','vocab_size':256000,'hidden_size':3072,"
     "'intermediate_size':24576,'num_hidden_layers':28,"
     "'num_attention_heads':16,'num_key_value_heads':16,'head_dim':256,"
     "'tie_word_embeddings':true,'attention_bias':false}"},
    {6738415616.0,
     "{'model_type':'granite','vocab_size':32000,'hidden_size':4096,"
     "'intermediate_size':11008,'num_hidden_layers':32,"
     "'num_attention_heads':32,'num_key_value_heads':32,"
     "'tie_word_embeddings':false,'attention_bias':false,'mlp_bias':false}"},
    {2499340288.0,
     "{'model_type':'granite','vocab_size':32000,'hidden_size':2048,"
     "'intermediate_size':8192,'num_hidden_layers':40,"
     "'num_attention_heads':32,'num_key_value_heads':8,"
     "'tie_word_embeddings':true,'attention_bias':true,'mlp_bias':true}"},
    {37039116288.0,
     "{'model_type':'granitemoe','vocab_size':32000,'hidden_size':4096,"
     "'intermediate_size':11008,'num_hidden_layers':32,"
     "'num_attention_heads':32,'num_key_value_heads':32,"
     "'tie_word_embeddings':false,'attention_bias':false,"
     "'num_local_experts':8,'num_experts_per_tok':2}"},
    {2795443200.0,
     "{'model_type':'stablelm','vocab_size':50304,'intermediate_size':6912,"
     "'hidden_size':2560,'num_hidden_layers':32,'num_attention_heads':32,"
     "'num_key_value_heads':32,'tie_word_embeddings':false,"
     "'use_qkv_bias':false,'qk_layernorm':false,'use_parallel_residual':false}"},
    {2428636160.0,
     "{'model_type':'stablelm','vocab_size':50304,'intermediate_size':6912,"
     "'hidden_size':2560,'num_hidden_layers':32,'num_attention_heads':32,"
     "'num_key_value_heads':4,'tie_word_embeddings':false,'use_qkv_bias':true,"
     "'qk_layernorm':true,'use_parallel_residual':false}"},
    {1644515328.0,
     "{'model_type':'stablelm','vocab_size':100352,'intermediate_size':5632,"
     "'hidden_size':2048,'num_hidden_layers':24,'num_attention_heads':32,"
     "'num_key_value_heads':32,'tie_word_embeddings':false,"
     "'use_qkv_bias':true,'qk_layernorm':false,'use_parallel_residual':false}"},
    {12143185920.0,
     "{'model_type':'stablelm','vocab_size':100352,'intermediate_size':13824,"
     "'hidden_size':5120,'num_hidden_layers':40,'num_attention_heads':32,"
     "'num_key_value_heads':8,'tie_word_embeddings':false,"
     "'use_qkv_bias':false,'qk_layernorm':true,'use_parallel_residual':true}"},
    {6888095744.0,
     "{'model_type':'olmo','vocab_size':50304,'hidden_size':4096,"
     "'intermediate_size':11008,'num_hidden_layers':32,"
     "'num_attention_heads':32,'num_key_value_heads':32,"
     "'tie_word_embeddings':false,'attention_bias':false}"},
    {6682574848.0,
     "{'model_type':'olmo','vocab_size':50304,'hidden_size':4096,"
     "'intermediate_size':11008,'num_hidden_layers':32,"
     "'num_attention_heads':32,'num_key_value_heads':32,"
     "'tie_word_embeddings':true,'attention_bias':true}"},
    {6921720704.0,
     "{'model_type':'falcon','vocab_size':65024,'hidden_size':4544,"
     "'num_hidden_layers':32,'num_attention_heads':71,'num_kv_heads':71,"
     "'new_decoder_architecture':false,'multi_query':true,"
     "'parallel_attn':true,'bias':false,'ffn_hidden_size':18176,"
     "'tie_word_embeddings':true}"},
    {41303293952.0,
     "{'model_type':'falcon','vocab_size':65024,'hidden_size':8192,"
     "'num_hidden_layers':60,'num_attention_heads':128,"
     "'num_ln_in_parallel_attn':2,'num_kv_heads':8,"
     "'new_decoder_architecture':true,'multi_query':true,'parallel_attn':true,"
     "'bias':false,'ffn_hidden_size':32768,'tie_word_embeddings':true}"},
    {1311625216.0,
     "{'model_type':'falcon','vocab_size':50304,'hidden_size':2048,"
     "'num_hidden_layers':24,'num_attention_heads':32,'num_kv_heads':32,"
     "'new_decoder_architecture':false,'multi_query':false,"
     "'parallel_attn':false,'bias':true,'ffn_hidden_size':8192,"
     "'tie_word_embeddings':true}"},
    {10836484096.0,
     "{'model_type':'falcon','vocab_size':65024,'hidden_size':4096,"
     "'num_hidden_layers':60,'num_attention_heads':32,"
     "'num_ln_in_parallel_attn':1,'num_kv_heads':8,"
     "'new_decoder_architecture':true,'multi_query':true,'parallel_attn':true,"
     "'bias':false,'ffn_hidden_size':16384,'tie_word_embeddings':true}"},
    {74894240.0,
     "{'model_type':'falcon','vocab_size':65024,'hidden_size':512,"
     "'num_hidden_layers':4,'num_attention_heads':8,'num_kv_heads':4,"
     "'new_decoder_architecture':false,'multi_query':false,"
     "'parallel_attn':true,'bias':true,'ffn_hidden_size':1000,"
     "'tie_word_embeddings':false}"},
    {125239296.0,
     "{'model_type':'opt','vocab_size':50272,'hidden_size':768,"
     "'num_hidden_layers':12,'ffn_dim':3072,'max_position_embeddings':2048,"
     "'do_layer_norm_before':true,'_remove_final_layer_norm':false,"
     "'word_embed_proj_dim':768,'num_attention_heads':12,'enable_bias':true,"
     "'layer_norm_elementwise_affine':true,'tie_word_embeddings':true}"},
    {331196416.0,
     "{'model_type':'opt','vocab_size':50272,'hidden_size':1024,"
     "'num_hidden_layers':24,'ffn_dim':4096,'max_position_embeddings':2048,"
     "'do_layer_norm_before':false,'_remove_final_layer_norm':false,"
     "'word_embed_proj_dim':512,'num_attention_heads':16,'enable_bias':true,"
     "'layer_norm_elementwise_affine':true,'tie_word_embeddings':true}"},
    {39379968.0,
     "{'model_type':'opt','vocab_size':50272,'hidden_size':512,"
     "'num_hidden_layers':4,'ffn_dim':2048,'max_position_embeddings':2048,"
     "'do_layer_norm_before':true,'_remove_final_layer_norm':true,"
     "'word_embed_proj_dim':512,'num_attention_heads':8,'enable_bias':false,"
     "'layer_norm_elementwise_affine':true,'tie_word_embeddings':true}"},
    {39390208.0,
     "{'model_type':'opt','vocab_size':50272,'hidden_size':512,"
     "'num_hidden_layers':4,'ffn_dim':2048,'max_position_embeddings':2048,"
     "'do_layer_norm_before':true,'_remove_final_layer_norm':false,"
     "'word_embed_proj_dim':512,'num_attention_heads':8,'enable_bias':true,"
     "'layer_norm_elementwise_affine':false,'tie_word_embeddings':true}"},
    {16156544.0,
     "{'model_type':'bloom','vocab_size':250880,'hidden_size':64,'n_layer':2,"
     "'n_head':8,'tie_word_embeddings':true}"},
    {176247271424.0,
     "{'model_type':'bloom','vocab_size':250880,'hidden_size':14336,"
     "'n_layer':70,'n_head':112,'tie_word_embeddings':true}"},
    {20554567680.0,
     "{'model_type':'gpt_neox','vocab_size':50432,'hidden_size':6144,"
     "'num_hidden_layers':44,'num_attention_heads':64,"
     "'intermediate_size':24576,'tie_word_embeddings':false,"
     "'use_parallel_residual':true,'attention_bias':true,'is_decoder':false}"},
    {162286080.0,
     "{'model_type':'gpt_neox','vocab_size':50304,'hidden_size':768,"
     "'num_hidden_layers':12,'num_attention_heads':12,"
     "'intermediate_size':3072,'tie_word_embeddings':false,"
     "'use_parallel_residual':true,'attention_bias':false,'is_decoder':false}"},
    {6050882784.0,
     "{'model_type':'gptj','vocab_size':50400,'n_positions':2048,"
     "'n_embd':4096,'n_layer':28,'n_head':16,'tie_word_embeddings':false}"},
    {59961472.0,
     "{'model_type':'gptj','vocab_size':50400,'n_positions':2048,'n_embd':512,"
     "'n_layer':4,'n_head':8,'n_inner':1000,'tie_word_embeddings':false}"},
    {6050882784.0,
     "{'model_type':'codegen','vocab_size':50400,'n_positions':2048,"
     "'n_ctx':2048,'n_embd':4096,'n_layer':28,'n_head':16,"
     "'tie_word_embeddings':false}"},
    {111446784.0,
     "{'model_type':'gpt_bigcode','vocab_size':50257,'n_positions':1024,"
     "'n_embd':768,'n_layer':12,'n_head':12,'multi_query':true,"
     "'tie_word_embeddings':true,'num_key_value_heads':1}"},
    {124439808.0,
     "{'model_type':'gpt_bigcode','vocab_size':50257,'n_positions':1024,"
     "'n_embd':768,'n_layer':12,'n_head':12,'multi_query':false,"
     "'tie_word_embeddings':true,'num_key_value_heads':12}"},
    {1315575808.0,
     "{'model_type':'gpt_neo','vocab_size':50257,"
     "'max_position_embeddings':2048,'hidden_size':2048,'num_layers':24,"
     "'num_heads':16,'tie_word_embeddings':true}"},
    {2779683840.0,
     "{'model_type':'phi','vocab_size':51200,'hidden_size':2560,"
     "'intermediate_size':10240,'num_hidden_layers':32,"
     "'num_attention_heads':32,'num_key_value_heads':32,"
     "'tie_word_embeddings':false,'qk_layernorm':false}"},
    {59838464.0,
     "{'model_type':'phi','vocab_size':51200,'hidden_size':512,"
     "'intermediate_size':1024,'num_hidden_layers':4,'num_attention_heads':8,"
     "'num_key_value_heads':4,'tie_word_embeddings':false,'qk_layernorm':true}"},
    {3030371328.0,
     "{'model_type':'starcoder2','vocab_size':49152,'hidden_size':3072,"
     "'intermediate_size':12288,'num_hidden_layers':30,"
     "'num_attention_heads':24,'num_key_value_heads':2,'use_bias':true,"
     "'tie_word_embeddings':true}"},
    {32515072.0,
     "{'model_type':'starcoder2','vocab_size':49152,'hidden_size':512,"
     "'intermediate_size':1024,'num_hidden_layers':4,'num_attention_heads':8,"
     "'num_key_value_heads':4,'use_bias':false,'tie_word_embeddings':true}"},
    {7241732096.0,
     "{'model_type':'mistral','vocab_size':32000,'hidden_size':4096,"
     "'intermediate_size':14336,'num_hidden_layers':32,"
     "'num_attention_heads':32,'num_key_value_heads':8,'head_dim':128,"
     "'tie_word_embeddings':false}"},
    {12049461248.0,
     "{'model_type':'qwen3','vocab_size':151936,'hidden_size':4096,"
     "'intermediate_size':22016,'num_hidden_layers':32,"
     "'num_attention_heads':32,'num_key_value_heads':32,'head_dim':128,"
     "'tie_word_embeddings':false,'attention_bias':false}"},
    {168181248.0,
     "{'model_type':'qwen3','vocab_size':151936,'hidden_size':512,"
     "'intermediate_size':1024,'num_hidden_layers':4,'num_attention_heads':8,"
     "'num_key_value_heads':4,'head_dim':128,'tie_word_embeddings':false,"
     "'attention_bias':true}"},
    {43276800.0,
     "{'model_type':'llama','vocab_size':32000,'hidden_size':512,"
     "'intermediate_size':1024,'num_hidden_layers':4,'num_attention_heads':8,"
     "'num_key_value_heads':8,'tie_word_embeddings':false,"
     "'attention_bias':true,'mlp_bias':true,'head_dim':64}"},
    {116829156672.0,
     "{'model_type':'gpt_oss','num_hidden_layers':36,'num_local_experts':128,"
     "'vocab_size':201088,'hidden_size':2880,'intermediate_size':2880,"
     "'head_dim':64,'num_attention_heads':64,'num_key_value_heads':8,"
     "'tie_word_embeddings':false,'num_experts_per_tok':4,"
     "'swiglu_alpha':1.702,'attention_bias':true}"},
    {7584414144.0,
     "{'model_type':'gpt_oss','num_hidden_layers':2,'num_local_experts':128,"
     "'vocab_size':201088,'hidden_size':2880,'intermediate_size':2880,"
     "'head_dim':64,'num_attention_heads':64,'num_key_value_heads':8,"
     "'tie_word_embeddings':false,'num_experts_per_tok':4,"
     "'swiglu_alpha':1.702,'attention_bias':false}"},
    {15111138560.0,
     "{'model_type':'deepseek_v3','vocab_size':129280,'hidden_size':7168,"
     "'intermediate_size':18432,'moe_intermediate_size':2048,"
     "'num_hidden_layers':4,'num_attention_heads':128,"
     "'num_key_value_heads':128,'n_shared_experts':1,'n_routed_experts':256,"
     "'kv_lora_rank':512,'q_lora_rank':1536,'qk_rope_head_dim':64,"
     "'v_head_dim':128,'qk_nope_head_dim':128,'num_experts_per_tok':8,"
     "'first_k_dense_replace':3,'tie_word_embeddings':false,"
     "'attention_bias':true,'qk_head_dim':192,'head_dim':64}"},
    {1448802304.0,
     "{'model_type':'qwen2_moe','vocab_size':151936,'hidden_size':2048,"
     "'intermediate_size':5632,'num_hidden_layers':8,'num_attention_heads':16,"
     "'num_key_value_heads':16,'tie_word_embeddings':false,"
     "'decoder_sparse_step':1,'moe_intermediate_size':1408,"
     "'shared_expert_intermediate_size':5632,'num_experts_per_tok':4,"
     "'num_experts':8,'mlp_only_layers':[0,3],'qkv_bias':true}"},
    {9399951360.0,
     "{'model_type':'glm','vocab_size':151552,'hidden_size':4096,"
     "'intermediate_size':13696,'num_hidden_layers':40,"
     "'num_attention_heads':32,'num_key_value_heads':2,'head_dim':128,"
     "'tie_word_embeddings':false,'attention_bias':true}"},
    {3075098624.0,
     "{'model_type':'smollm3','vocab_size':128256,'hidden_size':2048,"
     "'intermediate_size':11008,'num_hidden_layers':36,"
     "'num_attention_heads':16,'num_key_value_heads':4,'attention_bias':false,"
     "'mlp_bias':false,'tie_word_embeddings':true}"},
    {28921040896.0,
     "{'model_type':'seed_oss','vocab_size':155136,'hidden_size':4096,"
     "'intermediate_size':27648,'num_hidden_layers':64,"
     "'num_attention_heads':80,'num_key_value_heads':8,"
     "'tie_word_embeddings':false,'attention_bias':true,"
     "'attention_out_bias':false,'mlp_bias':false,'head_dim':128}"},
    {2172643840.0,
     "{'model_type':'helium','vocab_size':48000,'hidden_size':2560,"
     "'intermediate_size':7040,'num_hidden_layers':24,"
     "'num_attention_heads':20,'num_key_value_heads':20,'head_dim':128,"
     "'tie_word_embeddings':false,'attention_bias':false,'mlp_bias':false}"},
    {9429069824.0,
     "{'model_type':'exaone4','vocab_size':102400,'hidden_size':4096,"
     "'intermediate_size':16384,'num_hidden_layers':32,"
     "'num_attention_heads':32,'num_key_value_heads':32,"
     "'tie_word_embeddings':false}"},
    {360748032.0,
     "{'model_type':'ernie4_5','vocab_size':103424,'hidden_size':1024,"
     "'intermediate_size':3072,'num_hidden_layers':18,"
     "'num_attention_heads':16,'num_key_value_heads':2,"
     "'tie_word_embeddings':true,'use_bias':false,'head_dim':128}"},
    {4022766080.0,
     "{'model_type':'arcee','vocab_size':32000,'hidden_size':2560,"
     "'intermediate_size':18432,'num_hidden_layers':32,"
     "'num_attention_heads':32,'num_key_value_heads':32,"
     "'tie_word_embeddings':false,'attention_bias':false,'mlp_bias':false,"
     "'head_dim':80}"},
    {41872793600.0,
     "{'model_type':'phimoe','vocab_size':32064,'hidden_size':4096,"
     "'intermediate_size':6400,'num_hidden_layers':32,"
     "'num_attention_heads':32,'num_key_value_heads':8,"
     "'tie_word_embeddings':false,'num_experts_per_tok':2,"
     "'num_local_experts':16,'attention_bias':false,'lm_head_bias':false}"},
    {270556160.0,
     "{'model_type':'nemotron','vocab_size':256000,'hidden_size':512,"
     "'intermediate_size':1024,'num_hidden_layers':4,'num_attention_heads':8,"
     "'head_dim':64,'num_key_value_heads':8,'norm_eps':1e-05,"
     "'tie_word_embeddings':false,'attention_bias':true,'mlp_bias':true}"},
    {2550251520.0,
     "{'model_type':'persimmon','vocab_size':262144,'hidden_size':4096,"
     "'intermediate_size':16384,'num_hidden_layers':2,"
     "'num_attention_heads':64,'tie_word_embeddings':false,"
     "'qk_layernorm':false}"},
};

static struct tu_model model_of(const char *config, struct tu_err *err)
{
    struct tu_model m = {0};
    char text[1024];
    size_t n = strlen(config);
    for (size_t i = 0; i <= n; i++)
        text[i] = config[i] == '\'' ? '"' : config[i];
    return tu_model_from_hf(&m, text, n, err) ? (struct tu_model){0} : m;
}

/* DeepSeek-V3: three dense layers first, one more that predicts a token behind 61. */
static void kinds_of_layers(void)
{
    struct tu_err err = {0};
    struct tu_model m = model_of(families[0].config, &err);
    double without = tu_train_step_flops(&m, 1, 4096, false);
    m.mtp_layers = 1;
    /* What the released files hold, 684531386000 values, but for 41.5 million scales of
     * blocks: an embedding and a head again among them. */
    double all = tu_train_params(&m) + tu_train_mtp_params(&m) + 2 * 7168.0 * 129280;
    ok(fabs(all + 41.5e6 - 684531386000.0) < 1e6, "%.0f parameters with what predicts", all);
    ok(tu_train_step_flops(&m, 1, 4096, false) > without * 1.02, "which takes time");
    struct tu_cluster c = {.gpus = 2048, .per_node = 8, .flops = 989e12, .link_bs = 450e9,
                           .network_bs = 50e9, .memory = 80000000000, .efficiency = .6};
    struct tu_train_query q = {.model = &m, .cluster = c, .batch = 15360, .seq = 4096,
                               .uneven = true};
    struct tu_layout_choice a = {.tp = 1, .pp = 16, .vpp = 1, .dp = 128, .cp = 1, .ep = 1,
                                 .mb = 1, .schedule = "1f1b"};
    struct tu_train_stage *stage;
    size_t n;
    if (tu_train_stages(&stage, &n, &q, &a, &err)) {
        ok(false, "stages: %s", err.msg);
        return;
    }
    double sum = 0, experts;
    uint32_t layers = 0, dense = 0, mtp = 0;
    for (size_t k = 0; k < n; k++) {
        sum += tui_stage_params(&q, &a, &stage[k], &experts);
        sum += experts;
        layers += stage[k].layers;
        dense += stage[k].kind[TU_LAYER_DENSE];
        mtp += stage[k].mtp;
    }
    ok(layers == 61 && dense == 3 && mtp == 1 && stage[0].kind[TU_LAYER_DENSE] == 3 &&
           stage[n - 1].mtp == 1,
       "each kind is where it belongs");
    /* All stages hold the model, and a second embedding. */
    double want = families[0].params + tu_train_mtp_params(&m) + 7168.0 * 129280;
    ok(fabs(sum - want) < 1, "stages hold %.0f of %.0f parameters", sum, want);
    struct tui_times t;
    tui_times_of(&t, &q, &a);
    struct tu_train_stage one = {.layers = 1, .kind = {1}};
    struct tu_train_stage plain = {.layers = 1, .kind = {[TU_LAYER_DENSE] = 1}};
    double w = tui_stage_time(&t, &q, &a, &one).w, d = tui_stage_time(&t, &q, &a, &plain).w;
    /* Products of a token: attention and 9 experts of 2048, or attention and 18432. */
    double attention = tui_attention_weights(&m);
    ok(fabs(w / d - (attention + 3 * 7168.0 * 9 * 2048) / (attention + 3 * 7168.0 * 18432)) <
           1e-9,
       "a dense layer takes its own time");
    tu_free(stage);
}

static void counted(void)
{
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        struct tu_err err = {0};
        struct tu_model m = model_of(families[k].config, &err);
        ok(m.layers && tu_model_known(m.family) && tu_train_params(&m) == families[k].params,
           "%s: %.0f parameters are %.0f", m.layers ? m.family : err.msg,
           tu_train_params(&m), families[k].params);
    }
}

/* Operations of a pass forward that torch 2.15's FlopCounterMode sees in models of
 * transformers 5.24.0 of these sizes, of 64 tokens. The experts of Llama 4 all run there: two of
 * two are chosen. */
static void counted_operations(void)
{
    static const struct {
        double flops;
        const char *config;
    } row[] = {
        {259260416.0,
         "{'model_type':'olmo2','hidden_size':256,'intermediate_size':512,"
         "'num_hidden_layers':3,'num_attention_heads':8,'num_key_value_heads':2,"
         "'vocab_size':1000}"},
        {309723136.0,
         "{'model_type':'llama4_text','hidden_size':256,'intermediate_size':128,"
         "'intermediate_size_mlp':512,'num_hidden_layers':4,'num_attention_heads':8,"
         "'num_key_value_heads':2,'head_dim':32,'vocab_size':1000,'num_local_experts':2,"
         "'num_experts_per_tok':2,'interleave_moe_layer_step':2}"},
    };
    struct tu_err err;
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        struct tu_model m = model_of(row[k].config, &err);
        double flops = tu_train_step_flops(&m, 1, 64, false) / 3;
        ok(fabs(flops - row[k].flops) < 1, "%s: %.0f operations are %.0f", m.family, flops,
           row[k].flops);
    }
}

/* Windows, chunks and states: what they save at 64 Ki tokens, by hand. */
static void mixed(void)
{
    struct tu_model m = {.heads = 1, .head_dim = 1, .window = 8192, .chunked = true};
    ok(tui_mix_flops(&m, 65536) == 4 * 8192.0, "chunks");
    ok(tui_mix_flops(&m, 12288) == 4 * (8192.0 * 8192 + 4096.0 * 4096) / 12288, "one in part");
    m.chunked = false; /* the first 8192 see half as many as those behind */
    ok(tui_mix_flops(&m, 65536) == 4 * (8192.0 * 8192 + 57344.0 * 2 * 8192) / 65536, "sliding");
    ok(tui_mix_flops(&m, 4096) == 4 * 4096.0, "a window wider than the sequence");
    m = (struct tu_model){.delta_value_heads = 32, .delta_value_dim = 128, .delta_key_dim = 64};
    ok(tui_mix_flops(&m, 65536) == 3 * 2 * 32 * 128 * 64.0, "a state, read twice and updated");
    uint64_t count[TU_LAYER_KINDS];
    m = (struct tu_model){.experts = 8, .moe_every = 2, .full_every = 3, .dense_layers = 3};
    tu_model_kinds(&m, 1, 12, count); /* experts in 3 5 7 9 11, whole attention in 2 5 8 11 */
    ok(count[0] == 2 && count[TU_LAYER_LOCAL] == 3 && count[TU_LAYER_DENSE] == 2 &&
           count[TU_LAYER_DENSE | TU_LAYER_LOCAL] == 4,
       "kinds of layers that alternate");
}

/* Lists of layers that no rule makes. */
static void listed(void)
{
#define FOUR "'hidden_size':64,'num_hidden_layers':4,'num_attention_heads':2,"
    struct tu_err err;
    uint64_t count[TU_LAYER_KINDS];
    struct tu_model m = model_of("{'model_type':'olmo3'," FOUR
                                 "'sliding_window':16,'layer_types':['full_attention',"
                                 "'sliding_attention','sliding_attention','full_attention']}",
                                 &err);
    tu_model_kinds(&m, 1, 4, count);
    ok(count[0] == 1 && count[TU_LAYER_LOCAL] == 2, "windows of the layers that a list names");
    struct tu_model all = m; /* 64 tokens: a window of 16 sees 28 on average, as counted */
    all.full_every = 1;
    double less = tu_train_step_flops(&all, 1, 64, false) - tu_train_step_flops(&m, 1, 64, false);
    ok(fabs(less - 3 * 2 * 64 * 4 * (64 - 28) * 64.0) < 1, "and operations: %.0f less", less);
    m = model_of("{'model_type':'qwen2'," FOUR
                 "'sliding_window':16,'layer_types':['full_attention','sliding_attention',"
                 "'sliding_attention','sliding_attention']}",
                 &err);
    tu_model_kinds(&m, 0, 4, count);
    ok(count[0] == 1 && count[TU_LAYER_LOCAL] == 3, "in a family that rarely has windows");
    m = model_of("{'model_type':'olmo3'," FOUR
                 "'layer_types':['full_attention','conv','conv','full_attention']}",
                 &err);
    ok(!m.layers && strstr(err.msg, "layer 1 is 'conv'"), "another kind: %s", err.msg);
    m = model_of("{'model_type':'olmo3'," FOUR "'layer_types':['full_attention']}", &err);
    ok(!m.layers && strstr(err.msg, "1 layers, the model 4"), "a short list: %s", err.msg);
    m = model_of("{'model_type':'qwen3_moe'," FOUR
                 "'decoder_sparse_step':2,'mlp_only_layers':[3]}",
                 &err);
    tu_model_kinds(&m, 0, 4, count);
    ok(count[0] == 1 && count[TU_LAYER_DENSE] == 3, "experts but for the layers of a list");
}

static void published(void)
{
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        struct tu_model m = gpt((uint64_t)table[k].l, (uint64_t)table[k].h,
                                (uint64_t)table[k].a, 51200, 2048);
        double params = tu_train_params(&m) / 1e9;
        double step = tu_train_step_flops(&m, table[k].batch, 2048, true) /
                      (table[k].n * table[k].tf * 1e12);
        ok(fabs(params - table[k].params) < .0006, "%.3f billion parameters are %.3f",
           params, table[k].params);
        ok(fabs(step / table[k].step - 1) < .002, "a step of %.2f s is %.2f s", step,
           table[k].step);
        ok(fabs(table[k].n * table[k].tf / 1000 / table[k].pf - 1) < .004,
           "%.1f PF together", table[k].pf);
    }
    struct tu_model gpt3 = gpt(96, 12288, 96, 51200, 2048);
    struct tu_model big = gpt(128, 25600, 160, 51200, 2048);
    ok(fabs(tu_train_days(&gpt3, 300e9, 1024 * 140e12) - 33.9) < .2, "175B: %.1f days",
       tu_train_days(&gpt3, 300e9, 1024 * 140e12));
    ok(fabs(tu_train_days(&big, 450e9, 3072 * 163e12) - 83.2) < 1.2, "1T: %.1f days",
       tu_train_days(&big, 450e9, 3072 * 163e12));
}

static void activations(void)
{
    static const struct {
        uint64_t l, h, a;
        double mb, none, sp, selective;
    } row[] = {
        {48, 6144, 64, 4, 1264, 844, 204},
        {96, 12288, 96, 1, 552, 342, 102},
        {105, 20480, 128, 1, 840, 490, 170},
        {128, 25600, 160, 1, 1050, 612.5, 212.5},
    };
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        struct tu_model m = gpt(row[k].l, row[k].h, row[k].a, 51200, 2048);
        double mib = 1 << 20, b = row[k].mb;
        double v[3] = {
            tu_train_layer_bytes(&m, 2048, b, 8, false, TU_RECOMPUTE_NONE) / mib,
            tu_train_layer_bytes(&m, 2048, b, 8, true, TU_RECOMPUTE_NONE) / mib,
            tu_train_layer_bytes(&m, 2048, b, 8, true, TU_RECOMPUTE_SELECTIVE) / mib};
        ok(fabs(v[0] - row[k].none) < 1 && fabs(v[1] - row[k].sp) < 1 &&
               fabs(v[2] - row[k].selective) < 1,
           "a layer of h=%llu: %.1f %.1f %.1f MiB", (unsigned long long)row[k].h, v[0],
           v[1], v[2]);
    }
}

static void search(void)
{
    struct tu_model m = gpt(96, 12288, 96, 51200, 2048);
    struct tu_train_plan p;
    struct tu_err err;
    struct tu_train_query q = {
        .model = &m,
        .batch = 1536,
        .seq = 2048,
        .sequence_parallel = true,
        .all = true,
        .cluster = {.gpus = 1024,
                    .per_node = 8,
                    .flops = 312e12,
                    .link_bs = 300e9,
                    .network_bs = 25e9,
                    .memory = UINT64_C(80) << 30,
                    .efficiency = .6}};
    ok(!tu_train_make(&p, &q, &err), "a plan for 175B on 1024 devices");
    ok(p.legal > 10 && p.n > p.legal, "%zu of %zu layouts are legal", p.legal, p.n);
    bool sorted = true, fits = true, reasons = true, product = true;
    for (size_t k = 0; k < p.n; k++) {
        const struct tu_train_row *r = &p.row[k];
        if (k < p.legal) {
            sorted = sorted && (!k || r[-1].step_s <= r->step_s);
            fits = fits && r->memory_bytes <= 80.0 * (1 << 30);
            product = product && r->at.tp * r->at.pp * r->at.dp * r->at.cp == 1024;
        } else {
            reasons = reasons && r->why_not;
        }
    }
    ok(sorted && fits && product, "sorted by time, in memory, on all devices");
    ok(reasons, "each rejected layout says why");
    ok(p.row[0].mfu > .3 && p.row[0].mfu < .6, "the best reaches %.1f %% of the peak",
       100 * p.row[0].mfu);
    ok(p.row[0].at.tp > 1 || p.row[0].at.pp > 1,
       "175B does not fit on data parallelism alone");
    static const char *const form[] = {"megatron", "torchtitan", "deepspeed"};
    struct tu_train_row plain = p.row[0], vee = p.row[0];
    plain.at.schedule = "1f1b";
    plain.at.zero = plain.at.offload = 0;
    plain.at.vpp = 1;
    vee.at.schedule = "zb-h1";
    for (size_t k = 0; k < 3; k++) {
        struct tu_buf b = {0};
        ok(!tu_train_emit(&b, &q, &plain, form[k], &err) && b.n > 50, "%s", form[k]);
        eq_int(tu_train_emit(&b, &q, &vee, form[k], &err), TU_EUNSUP, "%s has no ZB-H1",
               form[k]);
        tu_buf_release(&b);
    }
    tu_train_release(&p);
    m.layers = 0;
    eq_int(tu_train_make(&p, &q, &err), TU_EUSAGE, "a model without layers");
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-6;
}

static void forms(void)
{
    static const double one[2] = {1, 1}, two[2] = {1, 2};
    ok(near(tu_form_ladder(one, 8, .6), 8.6) && near(tu_form_ladder(one, 8, 1), 9) &&
           near(tu_form_ladder(one, 8, 1.5), 13),
       "ladder of equal modules");
    ok(near(tu_form_ladder(two, 8, .6), 12.6) && near(tu_form_ladder(two, 8, 1.5), 15),
       "ladder of 1 and 2");
    ok(near(tu_form_kraken(1, 2, .6, 4), 12.6) && near(tu_form_kraken(1, 2, 1.5, 4), 15),
       "one all-reduce a layer");
    static const double t3[] = {16, 13, 11.5, 10.75, 10.375};
    for (size_t k = 0; k < 5; k++)
        ok(near(tu_form_t3(10, 6, (size_t)1 << k, 0), t3[k]) &&
               near(tu_form_t3(6, 10, (size_t)1 << k, 0), t3[k]),
           "T3 in %zu chunks", (size_t)1 << k);
    /* Two chunks of 5: the second one's first 3 are beside the link: they take 1.5 each
     * for 3 of 4.5 s, so 2 are done then and 3 are left. */
    ok(near(tu_form_t3(10, 6, 2, .5), 14), "T3 with contention: %g",
       tu_form_t3(10, 6, 2, .5));
    unsigned pos;
    double hidden;
    double l = tu_form_scmoe((const double[]){2, 2, 2, 1, .5, 3, 2, 3}, &hidden, &pos);
    ok(near(l, 10.5) && pos == 1 && near(hidden, 5. / 6), "ScMoE: %g %u %g", l, pos,
       hidden);
    l = tu_form_scmoe((const double[]){2, 2, 2, 1, .5, 1, 2, 1}, &hidden, &pos);
    ok(near(l, 9.5) && pos == 1 && near(hidden, 1), "ScMoE: %g %u %g", l, pos, hidden);
    static const double nano[6] = {3, 3, 1, 1, 6, 1};
    static const unsigned res[6] = {0, 1, 0, 2, 0, 2};
    static const double want[4][4] = {{15, 30, 60, 120},
                                      {11.5, 21.5, 41.5, 81.5},
                                      {10.3333333, 22, 45.3333333, 92},
                                      {11.25, 20.75, 40.75, 80.75}};
    static const double extra[4] = {31.2, 23, 24.2, 23.45};
    for (size_t k = 1; k <= 4; k++) {
        for (size_t e = 0; e < 4; e++)
            ok(near(tu_form_nano(nano, res, 6, k, NULL, 0, (size_t)1 << e, NULL), want[k - 1][e]),
               "nano-batches %zu, %zu layers: %g is %g", k, (size_t)1 << e,
               tu_form_nano(nano, res, 6, k, NULL, 0, (size_t)1 << e, NULL), want[k - 1][e]);
        ok(near(tu_form_nano(nano, res, 6, k, NULL, .1, 2, NULL), extra[k - 1]),
           "nano-batches %zu with overhead", k);
    }
    size_t k;
    double best = tu_form_nano_best(nano, res, 6, 0, 2, NULL, &k);
    ok(best <= 20.75 + 1e-9 && best >= 20 && k > 1,
       "uneven nano-batches: %g is between the bound 20 and the best equal 20.75", best);
}

/* The table of forms on one layer: attention 1, MLP 2, all-reduce .6. */
static void overlaps(void)
{
    struct tu_layer l = {.attention = 1, .mlp = 2, .reduce = .6, .out = .25, .down = 1};
    ok(near(tu_overlap_find("standard")->time(&l, 4, NULL), 16.8), "standard 16.8");
    ok(near(tu_overlap_find("ladder")->time(&l, 4, NULL), 12.6), "ladder 12.6");
    ok(near(tu_overlap_find("kraken")->time(&l, 4, NULL), 12.6), "kraken 12.6");
    /* Half an all-reduce, .3, in eight chunks: behind .25 of attention it shows .3 +
     * .25/8 - .25, behind 1 of the MLP .3/8. */
    ok(near(tu_overlap_find("t3")->time(&l, 4, NULL), 4 * (3 + .6 + .08125 + .0375)), "T3 %g",
       tu_overlap_find("t3")->time(&l, 4, NULL));
    double nano = tu_overlap_find("nano")->time(&l, 4, NULL);
    ok(nano < 16.8 && nano > 12, "nano-batches %g", nano);
    ok(tu_overlap_find("none") == NULL, "a form that is not there");
}

/* By hand: two operations of 4, compute then network, in two halves. */
static void interference(void)
{
    static const double time[2] = {4, 4}, half[3] = {.5, 1, .5}, uneven[3] = {.8, 1, .5};
    static const unsigned res[2] = {0, 2};
    ok(near(tu_form_nano(time, res, 2, 2, NULL, 0, 1, NULL), 6), "undisturbed: 2 + 2 + 2");
    ok(near(tu_form_nano(time, res, 2, 2, NULL, 0, 1, half), 8), "at half speed: 2 + 4 + 2");
    /* Compute ends at 4.5, when .75 of the network's 2 are left; it goes on alone. */
    ok(near(tu_form_nano(time, res, 2, 2, NULL, 0, 1, uneven), 7.25), "2 + 2.5 + .75 + 2: %g",
       tu_form_nano(time, res, 2, 2, NULL, 0, 1, uneven));
    ok(near(tu_form_nano(time, res, 2, 1, NULL, 0, 3, half), 24), "nothing runs beside one");
    static const char rows[] = "# measured\nnetwork,0.2,0.6\nnetwork, 0.4, 0.9\n\n"
                                "compute,0.6,0.7\ncompute,0.8,0.9\n";
    struct tu_interference x = {0};
    struct tu_err err;
    ok(!tu_interference_read(&x, rows, sizeof rows - 1, &err), "a table");
    ok(near(tu_curve_at(&x.network, .1), .3) && near(tu_curve_at(&x.network, .3), .75) &&
           near(tu_curve_at(&x.network, .7), .95) && near(tu_curve_at(&x.network, 1), 1),
       "straight lines between rows");
    static const char *const bad[] = {"network,0.2\n", "link,0.2,0.5\n", "network,0.2,0.5\n",
                                      "network,.4,.5\nnetwork,.2,.6\ncompute,.5,.5\n",
                                      "network,.2,.5\nnetwork,.4,.4\ncompute,.5,.5\n",
                                      "network,.2,1.5\ncompute,.5,.5\n",
                                      "network,nan,.5\ncompute,.5,.5\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tu_interference y = {0};
        ok(tu_interference_read(&y, bad[i], strlen(bad[i]), &err) == TU_EFORMAT, "refused: %s",
           bad[i]);
    }
    struct tu_layer l = {.attention = 1, .mlp = 2, .reduce = .6, .out = .25, .down = 1};
    double free_ = tu_overlap_find("nano")->time(&l, 4, NULL);
    double slow = tu_overlap_find("nano")->time(&l, 4, &x);
    ok(slow > free_ && slow < 16.8, "nano-batches: %g < %g < 16.8", free_, slow);
    /* Beside the link a product takes twice as long: each of the seven parts of 1 / 8 behind
     * the first meets .0375 s of it, those of .25 / 8 too: both show .16875. */
    x.contention = 1;
    ok(near(tu_overlap_find("t3")->time(&l, 4, &x), 4 * (3 + .6 + 2 * .16875)), "T3 %g",
       tu_overlap_find("t3")->time(&l, 4, &x));
}

static void updates(void)
{
    struct tu_cluster c = {.memory_bs = 3e12,
                           .host_bs = 25e9,
                           .ssd_bs = 3e9,
                           .cpu_update = 2e9,
                           .cpu_convert = 8e9};
    struct tu_err err;
    double cpu, split, ssd, gpu;
    double share;
    int rc = tu_update_run(&gpu, &share, TU_OFFLOAD_NONE, &c, 16e9, 16, 1, &err);
    ok(!rc && near(gpu, 16e9 * 30 / 3e12), "on the GPU %g s", gpu);
    rc = tu_update_run(&cpu, &share, TU_OFFLOAD_CPU, &c, 16e9, 16, 1, &err);
    /* Update and conversion one after the other, then the last upload of 10^8; and all
     * gradients down. */
    ok(!rc && near(cpu, 16e9 * (1 / 2e9 + 1 / 8e9) + 2e8 / 25e9 + 32e9 / 25e9),
       "on the CPU %g s", cpu);
    rc = tu_update_run(&split, &share, TU_OFFLOAD_SPLIT, &c, 16e9, 16, 1, &err);
    /* Every second subgroup on the GPU: the CPU does half. */
    ok(!rc && split > cpu / 2 && split < .65 * cpu, "split %g s of %g", split, cpu);
    ok(near(share, .5), "the CPU's share: %g", share);
    rc = tu_update_run(&ssd, &share, TU_OFFLOAD_SSD, &c, 16e9, 16, 1, &err);
    /* The SSD is the slowest: 16 times 10^9 parameters of 24 bytes behind the first
     * layer's other three stages, less the backward, and the gradients. */
    ok(!rc && near(ssd, 16 * 8 + 1. / 16 + .08 + .625 - 1 + 1.28), "on the SSD %g s", ssd);
    c.ssd_bs = 0;
    eq_int(tu_update_run(&ssd, &share, TU_OFFLOAD_SSD, &c, 16e9, 16, 1, &err), TU_EUSAGE,
           "no SSD");
}

/* Stages of uneven kinds: a vision encoder in front, a heavy head behind. */
static void uneven(void)
{
    struct tu_model m = gpt(30, 4096, 32, 256000, 2048);
    struct tu_encoder eye = {24, 1024, 576};
    struct tu_train_query q = {.model = &m,
                               .batch = 64,
                               .seq = 2048,
                               .uneven = true,
                               .encoder = &eye,
                               .cluster = {32, 8, 312e12, 300e9, 25e9,
                                           UINT64_C(80) << 30, .6, 0, 0, 0, 0, 0}};
    struct tu_layout_choice a = {1, 4, 1, 8, 1, 1, 1, "1f1b", TU_RECOMPUTE_NONE, 1, 0};
    struct tu_train_stage *stage;
    struct tu_err err;
    size_t n;
    int rc = tu_train_stages(&stage, &n, &q, &a, &err);
    uint32_t layers = 0, eyes = 0;
    for (size_t k = 0; !rc && k < n; k++) {
        layers += stage[k].layers;
        eyes += stage[k].encoder;
    }
    ok(!rc && n == 4 && layers == 30 && eyes == 24, "all layers are somewhere");
    ok(!rc && stage[0].embedding && stage[0].encoder == 24 && stage[3].head &&
           stage[3].layers < stage[1].layers && stage[0].layers < stage[1].layers,
       "encoder and head take the place of layers: %u %u %u %u", stage[0].layers,
       stage[1].layers, stage[2].layers, stage[3].layers);
    tu_free(stage);
    struct tu_train_row with, without;
    rc = tu_train_price(&with, &q, &a, &err);
    ok(!rc && !with.why_not, "30 layers on 4 stages are legal when uneven");
    q.uneven = false;
    rc = tu_train_price(&without, &q, &a, &err);
    ok(!rc && without.why_not, "and not otherwise: %s", without.why_not);
}

/* Korthikanti et al., 2022: MFU, HFU, seconds of a step with selective recomputation; they
 * count attention's products twice, all three ways. */
static void selective(void)
{
    static const struct {
        double l, h, a, batch, n, mfu, hfu, step;
    } t[] = {
        {48, 6144, 64, 4, 8, 41.5, 43.7, 1.10},
        {96, 12288, 96, 64, 64, 51.4, 52.8, 13.75},
        {105, 20480, 128, 280, 280, 56.0, 57.0, 37.83},
        {128, 25600, 160, 512, 512, 56.3, 57.0, 71.49},
    };
    for (size_t k = 0; k < 4; k++) {
        struct tu_model m = gpt((uint64_t)t[k].l, (uint64_t)t[k].h, (uint64_t)t[k].a,
                                51200, 2048);
        double peak = t[k].n * 312e12 * t[k].step;
        double need = tu_train_step_flops(&m, t[k].batch, 2048, false);
        double done = need + t[k].batch * 2048 * t[k].l * 12 * 2048 * t[k].h;
        ok(fabs(100 * need / peak / t[k].mfu - 1) < .01 &&
               fabs(100 * done / peak / t[k].hfu - 1) < .012,
           "a step of %.2f s: MFU %.1f, HFU %.1f", t[k].step, 100 * need / peak,
           100 * done / peak);
    }
}

int main(void)
{
    published();
    activations();
    search();
    forms();
    overlaps();
    interference();
    counted();
    counted_operations();
    mixed();
    listed();
    kinds_of_layers();
    updates();
    uneven();
    selective();
    return tap_done();
}
