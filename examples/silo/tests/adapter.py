"""What lora_peft.py trains is an adapter that PEFT loads. adapter.py. Needs PyTorch and peft."""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

import torch

from folder import SILO, Folder

sys.path.insert(0, str(SILO))


def main():
    if importlib.util.find_spec("peft") is None:
        return print("SKIPPED: no peft, so no adapter was loaded")
    import lora_peft
    import net
    from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict

    model = lora_peft.adapted()
    folder = Folder(get_peft_model_state_dict(model))
    trained = folder.run("lora_peft.py", 1)
    set_peft_model_state_dict(model, trained)
    with tempfile.TemporaryDirectory() as name:
        adapter = pathlib.Path(name)
        (adapter / "adapter_model.safetensors").write_bytes((folder.path / "trained.safetensors").read_bytes())
        subprocess.run([sys.executable, SILO / "lora_peft.py", "--adapter", adapter], check=True)
        torch.manual_seed(7)
        loaded = PeftModel.from_pretrained(net.model(), adapter)
    x, _ = net.rows()
    assert torch.equal(loaded(x), model(x)), "the loaded adapter computes something else"
    print("lora_peft.py: PEFT loads the trained adapter, and computes the same bits")


if __name__ == "__main__":
    main()
