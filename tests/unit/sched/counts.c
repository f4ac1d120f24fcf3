/* SPDX-License-Identifier: Apache-2.0 */
/* counts.c: parameters and operations of models against those that transformers and torch
 * count, and what kinds of layers save; by the configurations' own words. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../tap.h"
#include "sched/plan_stage.h"

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

int main(void)
{
    counted();
    counted_operations();
    mixed();
    listed();
    kinds_of_layers();
    return tap_done();
}
