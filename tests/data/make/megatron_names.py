"""tests/data/megatron/*.names: parameter names and shapes of Megatron-core's own models.

    megatron_names.py

The GPTModel of a DeepSeek-V3 (latent attention, a dense layer, experts, a layer that
predicts one more token) is built on the CPU for the config of tests/data/hf/deepseek_v3, by
the local layer specification: TransformerEngine needs a GPU.  What core 0.16.1 asks of
TransformerEngine for latent attention all the same (two classes to compare with, and the
widths of k and v that its own attention does not take) is put in its place; no parameter
depends on it.
"""
import json
import os

import torch

from common import DATA, folder

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29611", RANK="0", WORLD_SIZE="1")


def deepseek(c):
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_mtp_block_spec
    from megatron.core.transformer import multi_latent_attention as mla
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    class Absent:
        pass

    mla.TELinear = mla.TEColumnParallelLinear = Absent
    init = DotProductAttention.__init__
    DotProductAttention.__init__ = lambda self, *a, k_channels=None, v_channels=None, **k: init(self, *a, **k)
    torch.cuda.current_device = lambda: "cpu"
    layers, dense = c["num_hidden_layers"], c["first_k_dense_replace"]
    config = MLATransformerConfig(
        num_layers=layers, hidden_size=c["hidden_size"], num_attention_heads=c["num_attention_heads"],
        ffn_hidden_size=c["intermediate_size"], q_lora_rank=c["q_lora_rank"], kv_lora_rank=c["kv_lora_rank"],
        qk_head_dim=c["qk_nope_head_dim"], qk_pos_emb_head_dim=c["qk_rope_head_dim"], v_head_dim=c["v_head_dim"],
        num_moe_experts=c["n_routed_experts"], moe_ffn_hidden_size=c["moe_intermediate_size"],
        moe_router_topk=c["num_experts_per_tok"], moe_layer_freq=[int(i >= dense) for i in range(layers)],
        moe_shared_expert_intermediate_size=c["n_shared_experts"] * c["moe_intermediate_size"],
        moe_router_score_function="sigmoid", moe_router_enable_expert_bias=True,
        mtp_num_layers=c["num_nextn_predict_layers"], qk_layernorm=True, rope_type="rope", gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, bias_activation_fusion=False, add_bias_linear=False,
        normalization="RMSNorm", use_cpu_initialization=True, params_dtype=torch.bfloat16)
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm")
    return GPTModel(config, spec, -(-c["vocab_size"] // 128) * 128, c["max_position_embeddings"],
                    position_embedding_type="rope", share_embeddings_and_output_weights=False,
                    mtp_block_spec=get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False))


def main():
    from megatron.core import parallel_state
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    with open(os.path.join(DATA, "hf", "deepseek_v3", "config.json")) as f:
        model = deepseek(json.load(f))
    with open(os.path.join(folder("megatron"), "deepseek_v3_local.names"), "w") as f:
        for name, t in sorted(model.state_dict().items()):
            if torch.is_tensor(t):
                f.write("%s %s\n" % (name, "x".join(map(str, t.shape))))


if __name__ == "__main__":
    main()
