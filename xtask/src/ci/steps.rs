//! The optional steps of `.ci/run`, as data. Formatting, tidy and compiling the tests by clippy always run.

/// A step with its packages and paths. `.ci/run` refers to it by name.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Packages; a change to any of their dependencies among our packages selects the step, too.
    pub(crate) packages: &'static [&'static str],
    /// Further folders and files; a change to one selects the step.
    pub(crate) paths: &'static [&'static str],
    /// Whether it runs the release build of `tributary` or `faults`.
    pub(crate) needs_release: bool,
}

/// The name of the step that builds `tributary` and `faults` for the others.
pub(crate) const RELEASE: &str = "release";

/// A change here concerns every step, and so does one to a file of `.ci` that no step names.
pub(crate) const EVERYTHING: &[&str] =
    &[".cargo", ".ci/affected.sh", ".ci/run", "Cargo.lock", "Cargo.toml", "xtask/src/ci", "xtask/src/main.rs"];

/// Changes to these paths need none of the optional steps.
pub(crate) const NOTHING: &[&str] =
    &[".gitignore", "CHANGELOG.md", "LICENSE", "SECURITY.md", "clippy.toml", "deny.toml", "justfile", "rustfmt.toml"];

/// All optional steps, except [`RELEASE`].
pub(crate) const TABLE: &[Step] = &[
    Step { name: "fuzz", packages: &["fuzz"], paths: &[], needs_release: false },
    Step { name: "opendp", packages: &["recipe"], paths: &["coordinator"], needs_release: false },
    Step {
        name: "rustdoc",
        packages: &[
            "tributary",
            "tributary-ffi",
            "tributary-python",
            "examples",
            "faults",
            "xtask",
            "tributary-bindgen",
        ],
        paths: &[],
        needs_release: false,
    },
    Step {
        name: "targets",
        packages: &["tributary-ffi", "aggregation", "federation", "wire", "inference", "learning"],
        paths: &[],
        needs_release: false,
    },
    Step { name: "miri", packages: &["aggregation"], paths: &["client-sdk/ffi"], needs_release: false },
    Step {
        name: "vectors",
        packages: &["tributary-ffi", "tributary-python"],
        paths: &[".ci/vectors.py"],
        needs_release: true,
    },
    Step { name: "load", packages: &["tributary", "test-servers"], paths: &[], needs_release: false },
    Step {
        name: "deployment",
        packages: &[],
        // The features of these decide whether a release can draw repeatable noise.
        paths: &[
            ".ci/deploy.sh",
            ".ci/gpu.sh",
            "deploy",
            "gpu",
            "docs",
            "coordinator",
            "cli",
            "store",
            "migrations",
            "inference",
            "listener",
            "operator-client",
            "private-files",
            "recipe",
            "serving",
            "client-sdk/Cargo.toml",
            "faults/Cargo.toml",
            "simulation/Cargo.toml",
        ],
        needs_release: true,
    },
    Step {
        name: "exports",
        packages: &["wire", "operator-client"],
        paths: &[
            ".ci/exports.sh",
            ".ci/exports.py",
            ".ci/federation.sh",
            ".ci/pypi.sh",
            "cli",
            "coordinator",
            "learning",
            "examples/privacy",
        ],
        needs_release: true,
    },
    Step {
        name: "contract",
        packages: &["wire", "listener"],
        paths: &[
            ".ci/contract.sh",
            ".ci/contract.py",
            ".ci/contract_hooks.py",
            ".ci/client.py",
            ".ci/federation.sh",
            ".ci/pypi.sh",
            "coordinator",
            "store",
            "api-reference",
            "cli",
            "migrations",
        ],
        needs_release: true,
    },
    Step {
        name: "serving",
        packages: &["serving"],
        paths: &[".ci/serving.sh", ".ci/serving_client.py", ".ci/onnx.py", ".ci/pypi.sh", "cli"],
        needs_release: true,
    },
    Step {
        name: "silo",
        packages: &[],
        paths: &[
            ".ci/silo.sh",
            ".ci/torch.sh",
            ".ci/pypi.sh",
            "examples/silo",
            "cli/src",
            "client-sdk/src/process_trainer",
            "client-sdk/python/tributary",
            "client-sdk/python/tests",
            "docs/PROGRAMS.md",
        ],
        needs_release: true,
    },
    Step {
        name: "torch",
        packages: &[],
        paths: &[
            ".ci/torch.sh",
            ".ci/pypi.sh",
            "examples/silo",
            "client-sdk/src/process_trainer",
            "client-sdk/python/tributary/program.py",
        ],
        needs_release: true,
    },
    Step {
        name: "python",
        packages: &["tributary-python", "listener"],
        paths: &[
            ".ci/python.sh",
            ".ci/torch.sh",
            ".ci/pypi.sh",
            "docs/tutorials",
            "docs/site",
            "examples/tables",
            "coordinator/src",
            "cli/src",
        ],
        needs_release: true,
    },
    Step {
        name: "sdks",
        packages: &["tributary-ffi", "tributary-python", "tributary-bindgen", "listener"],
        paths: &[
            ".ci/sdks.sh",
            ".ci/sdks",
            ".ci/federation.sh",
            ".ci/pypi.sh",
            "client-sdk",
            "examples",
            "coordinator/src",
        ],
        needs_release: true,
    },
    Step {
        name: "docs",
        packages: &["examples"],
        paths: &[
            ".ci/docs.sh",
            ".ci/pypi.sh",
            "docs",
            "README.md",
            "ARCHITECTURE.md",
            "CONTRIBUTING.md",
            "cli",
            "client-sdk",
        ],
        needs_release: true,
    },
    Step {
        name: "dashboard",
        packages: &["wire", "listener"],
        paths: &[".ci/dashboard.sh", "dashboard", "coordinator", "cli/src"],
        needs_release: true,
    },
    Step { name: "faults", packages: &["faults"], paths: &[], needs_release: true },
    Step { name: "examples", packages: &["examples"], paths: &[], needs_release: false },
    Step { name: "demo", packages: &["tributary"], paths: &["xtask/src/floor.rs"], needs_release: true },
    Step { name: "kernels", packages: &["aggregation"], paths: &[], needs_release: false },
    Step { name: "gpu", packages: &["aggregation"], paths: &[".ci/gpu.sh", "gpu", "docs/GPU.md"], needs_release: true },
    Step { name: "ptx", packages: &["aggregation"], paths: &[], needs_release: false },
];
