//! The file that runs a plan, for three launchers. This module only writes its text.

use std::fmt::Write as _;

use serde::Serialize;

use super::document::Document;
use super::{WrongRequest, rules::Sharding};

/// Who starts the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Launcher {
    Torchrun,
    Slurm,
    Kubernetes,
}

const PORT: u16 = 29_500;

/// A file that runs `program` (a script of Python and its arguments) by the document.
///
/// # Errors
/// [`WrongRequest::DoesNotFit`].
pub(crate) fn script(document: &Document, launcher: Launcher, program: &str) -> Result<String, WrongRequest> {
    let memory = &document.strategy.memory;
    if !memory.fits.value {
        let sharding = document.strategy.sharding.value;
        let remedy = match sharding {
            Sharding::Ddp => "more memory per GPU, or more GPUs to shard over",
            Sharding::ShardGradOp
            | Sharding::FullShard
            | Sharding::Zero2
            | Sharding::Zero3
            | Sharding::Zero3Offload => "more GPUs or nodes, a shorter --sequence, or a smaller model",
        };
        return Err(WrongRequest::DoesNotFit { needs: memory.total.value, has: memory.usable.value, sharding, remedy });
    }
    Ok(match launcher {
        Launcher::Torchrun => torchrun(document, program),
        Launcher::Slurm => slurm(document, program),
        Launcher::Kubernetes => kubernetes(document, program),
    })
}

/// Variables that the script reads, and those of the network.
fn variables(document: &Document) -> Vec<(&'static str, String)> {
    let (strategy, batch) = (&document.strategy, &document.batch_configuration);
    let mut all = vec![
        ("STRATEGY", strategy.sharding.value.name().to_owned()),
        ("PRECISION", strategy.precision.value.name().to_owned()),
        ("LOSS_SCALING", u8::from(strategy.loss_scaling.value).to_string()),
        ("ACTIVATION_CHECKPOINTING", u8::from(strategy.activation_checkpointing.value).to_string()),
        ("BATCH_PER_GPU", batch.per_gpu.value.to_string()),
        ("ACCUMULATE", batch.accumulation.value.to_string()),
        ("LEARNING_RATE", batch.learning_rate.value.to_string()),
        ("WARMUP_EPOCHS", batch.warmup_epochs.value.to_string()),
        ("CHECKPOINT_STEPS", document.checkpoint_strategy.every_steps.value.to_string()),
        ("CHECKPOINT_MINUTES", document.checkpoint_strategy.every_minutes.value.to_string()),
        ("CHECKPOINTS_KEPT", document.checkpoint_strategy.keep.value.to_string()),
    ];
    all.extend(document.rdma_config.env_vars.iter().map(|(name, value)| (*name, value.value.to_owned())));
    all
}

fn exports(document: &Document) -> String {
    let mut text = String::new();
    for (name, value) in variables(document) {
        let _ = writeln!(text, "export {name}={value}");
    }
    text
}

fn torchrun(document: &Document, program: &str) -> String {
    let (gpus, nodes) = (document.distributed_config.gpus_per_node.value, document.distributed_config.nodes.value);
    let exports = exports(document);
    if nodes == 1 {
        return format!(
            "#!/bin/sh\n# tributary participant run … --trainer 'sh run.sh' --trainer-dir jobs\nset -eu\n{exports}\
             exec torchrun --standalone --nproc-per-node {gpus} --max-restarts 0 {program}\n"
        );
    }
    format!(
        "#!/bin/sh\n\
         # tributary participant run … --trainer 'HOSTS=\"one two …\" sh run.sh' --trainer-dir jobs\n\
         # HOSTS names {nodes} nodes, this one first; the others are reached by ssh, and see this folder and the job's by the same paths.\n\
         set -eu\n{exports}\
         set -- $HOSTS\n\
         [ $# -eq {nodes} ] || {{ echo \"HOSTS names $# nodes; the plan is for {nodes}\" >&2; exit 2; }}\n\
         first=$1 rank=0 others=\n\
         shift\n\
         launch='torchrun --nnodes {nodes} --nproc-per-node {gpus} --max-restarts 0 --rdzv-backend c10d'\n\
         trap 'kill $others 2>/dev/null' EXIT\n\
         trap 'exit 143' TERM\n\
         for host; do\n    \
             rank=$((rank + 1))\n    \
             # With a terminal, so that what runs there ends with the connection.\n    \
             ssh -tt \"$host\" \"cd '$PWD' && export TRIBUTARY_JOB='${{TRIBUTARY_JOB:-}}' TRIBUTARY_JOBS='${{TRIBUTARY_JOBS:-}}' $(env | grep -E '^({names})=' | tr '\\n' ' ') && exec $launch --node-rank $rank --rdzv-id job --rdzv-endpoint $first:{PORT} {program}\" </dev/null &\n    \
             others=\"$others $!\"\n\
         done\n\
         $launch --node-rank 0 --rdzv-id job --rdzv-endpoint \"$first:{PORT}\" {program} &\n\
         wait $!\n",
        names = variables(document).iter().map(|(name, _)| *name).collect::<Vec<_>>().join("|"),
    )
}

fn slurm(document: &Document, program: &str) -> String {
    let (gpus, nodes) = (document.distributed_config.gpus_per_node.value, document.distributed_config.nodes.value);
    let exports = exports(document);
    format!(
        "#!/bin/sh\n\
         # tributary participant run … --trainer 'sh run.sh' --trainer-dir jobs\n\
         # The job's folder lies where all nodes see it.\n\
         #SBATCH --job-name=tributary\n\
         #SBATCH --nodes={nodes}\n\
         #SBATCH --ntasks-per-node=1\n\
         #SBATCH --gpus-per-node={gpus}\n\
         set -eu\n\
         # Outside of an allocation: get one, which ends with this process.\n\
         [ -n \"${{SLURM_JOB_ID:-}}\" ] || exec salloc --nodes={nodes} --ntasks-per-node=1 --gpus-per-node={gpus} sh \"$0\"\n\
         {exports}\
         first=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n\
         export first\n\
         exec srun --nodes={nodes} --ntasks-per-node=1 --kill-on-bad-exit=1 sh -c 'exec torchrun --nnodes {nodes} \
         --nproc-per-node {gpus} --max-restarts 0 --node-rank \"$SLURM_NODEID\" --rdzv-backend c10d --rdzv-id \"$SLURM_JOB_ID\" \
         --rdzv-endpoint \"$first:{PORT}\" {program}'\n"
    )
}

/// A script that creates an indexed Job and waits for it: kubectl is all that it needs.
fn kubernetes(document: &Document, program: &str) -> String {
    let (gpus, nodes) = (document.distributed_config.gpus_per_node.value, document.distributed_config.nodes.value);
    let mut env = String::new();
    for (name, value) in variables(document) {
        let _ = write!(env, "\n            - {{ name: {name}, value: \"{value}\" }}");
    }
    format!(
        r#"#!/bin/sh
# tributary participant run … --trainer 'IMAGE=registry/trainer:1 sh run.sh' --trainer-dir /jobs
# The image has PyTorch and {program}; the claim tributary-jobs (ReadWriteMany) is mounted at /jobs here and in the Job.
set -eu
: "${{IMAGE:?the image that trains}}" "${{TRIBUTARY_JOB:?set by the participant}}"
name=tributary-$(basename "$TRIBUTARY_JOB")
end() {{ kubectl delete job,service "$name" --ignore-not-found --cascade=foreground >/dev/null; }}
trap end EXIT
trap 'exit 143' TERM
end
kubectl create -f - >/dev/null <<MANIFEST
apiVersion: v1
kind: Service
metadata:
  name: $name
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    job-name: $name
---
apiVersion: batch/v1
kind: Job
metadata:
  name: $name
spec:
  completionMode: Indexed
  completions: {nodes}
  parallelism: {nodes}
  backoffLimit: 0
  template:
    spec:
      subdomain: $name
      restartPolicy: Never
      containers:
        - name: trainer
          image: $IMAGE
          command: ["/bin/sh", "-c"]
          args:
            - >-
              exec torchrun --nnodes {nodes} --nproc-per-node {gpus} --max-restarts 0 --node-rank "\$JOB_COMPLETION_INDEX"
              --rdzv-backend c10d --rdzv-id job --rdzv-endpoint $name-0.$name:{PORT} {program}
          env:
            - {{ name: TRIBUTARY_JOB, value: "$TRIBUTARY_JOB" }}{env}
          resources:
            limits:
              nvidia.com/gpu: {gpus}
          volumeMounts:
            - {{ name: jobs, mountPath: /jobs }}
            - {{ name: memory, mountPath: /dev/shm }}
      volumes:
        - name: jobs
          persistentVolumeClaim:
            claimName: tributary-jobs
        - name: memory
          emptyDir:
            medium: Memory
MANIFEST
while :; do
    state=$(kubectl get job "$name" -o 'jsonpath={{.status.conditions[?(@.status=="True")].type}}')
    case $state in
        *Failed*) kubectl logs "job/$name" --tail 50 >&2 || true; exit 1 ;;
        *Complete*) exit 0 ;;
    esac
    sleep 2 & wait $!
done
"#
    )
}
