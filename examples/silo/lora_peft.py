"""Low-rank adapters of a model that each site has: the task's model is the adapters alone, and the rest never travels (needs peft).

The task names the tensors that `python3 examples/silo/lora_peft.py --tensors` prints. They have PEFT's names, so what `tributary model fetch --out
adapter/adapter_model.safetensors` writes is a folder of PEFT's once `--adapter adapter` has put adapter_config.json beside it.
"""
import json
import sys

import net
import torch
import tributary
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def adapted():
    # In place of the file that a site would load.
    torch.manual_seed(7)
    return get_peft_model(net.model(), LoraConfig(r=4, lora_alpha=8, target_modules=["0", "2"]))


def main():
    rank, processes = net.begin()
    job = tributary.job()
    if job.kind == "evaluate":
        job.refuse("lora_peft.py does not evaluate")
    model = adapted()
    set_peft_model_state_dict(model, job.model())
    optimizer = net.sgd(job, [parameter for parameter in model.parameters() if parameter.requires_grad])
    wrapped = DistributedDataParallel(model) if processes > 1 else model
    x, y = net.rows()
    for step, of, batch in net.steps(job, len(x)):
        mine = batch[rank::processes]
        optimizer.zero_grad()
        loss = cross_entropy(wrapped(x[mine]), y[mine])
        loss.backward()
        optimizer.step()
        job.progress(step, of, loss)
    job.done(get_peft_model_state_dict(model), examples=len(x), metrics={"train_loss": loss})


if __name__ == "__main__":
    if "--tensors" in sys.argv:
        state = get_peft_model_state_dict(adapted())
        print(json.dumps([{"name": name, "shape": list(value.shape)} for name, value in state.items()]))
    elif "--adapter" in sys.argv:
        adapted().peft_config["default"].save_pretrained(sys.argv[sys.argv.index("--adapter") + 1])
    else:
        main()
