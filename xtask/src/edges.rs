//! The allowed dependencies between crates, as data: every new edge is a reviewed line here.

/// The allowed dependencies of a crate.
pub(crate) struct Allowed {
    pub(crate) package: &'static str,
    /// Permitted dependencies among the workspace's crates.
    pub(crate) ours: &'static [&'static str],
    /// Forbidden direct dependencies on external crates.
    pub(crate) never: &'static [&'static str],
}

const IO: &[&str] = &["tokio", "axum", "hyper", "reqwest", "rusqlite", "sqlx", "rustls"];

/// One row per workspace member.
pub(crate) const TABLE: &[Allowed] = &[
    Allowed {
        package: "secure-agg",
        ours: &[],
        never: &["tokio", "serde_json", "rusqlite", "sqlx", "axum", "hyper", "reqwest"],
    },
    Allowed { package: "task-spec", ours: &["graph"], never: &["tokio", "rand", "axum", "rusqlite", "sqlx", "ring"] },
    Allowed {
        package: "learning",
        ours: &["task-spec"],
        never: &["tokio", "axum", "rusqlite", "sqlx", "ring", "chacha20", "x25519-dalek"],
    },
    Allowed {
        package: "federation",
        ours: &["task-spec"],
        never: &["tokio", "axum", "rusqlite", "sqlx", "ring", "chacha20", "x25519-dalek"],
    },
    Allowed { package: "datasets", ours: &[], never: IO },
    Allowed { package: "graph", ours: &[], never: IO },
    Allowed { package: "graph-import", ours: &["graph"], never: IO },
    Allowed { package: "inference", ours: &[], never: IO },
    Allowed { package: "recipe", ours: &["federation", "learning", "secure-agg", "task-spec", "wire"], never: IO },
    Allowed { package: "wire", ours: &["federation", "secure-agg", "task-spec"], never: IO },
    Allowed {
        package: "aggregation",
        ours: &["secure-agg"],
        never: &["tokio", "axum", "hyper", "reqwest", "rusqlite", "sqlx"],
    },
    Allowed { package: "private-files", ours: &[], never: IO },
    Allowed { package: "forward-proxy", ours: &[], never: &["rusqlite", "sqlx", "axum", "openssl"] },
    // `reqwest` for the TLS of object_store; `test-servers` for tests only.
    Allowed {
        package: "store",
        ours: &["federation", "forward-proxy", "private-files", "task-spec", "test-servers"],
        never: &["axum", "hyper", "s3s", "s3s-fs"],
    },
    Allowed {
        package: "listener",
        ours: &["federation", "secure-agg", "wire"],
        never: &["reqwest", "rusqlite", "sqlx", "object_store"],
    },
    Allowed { package: "test-servers", ours: &[], never: &["axum", "reqwest", "rusqlite", "sqlx", "object_store"] },
    // Itself for tests only, with candle to compare with.
    Allowed {
        package: "client-sdk",
        ours: &["client-sdk", "forward-proxy", "graph", "wire", "recipe", "secure-agg", "learning", "task-spec"],
        never: &["rusqlite", "sqlx", "axum", "reqwest", "openssl", "mimalloc"],
    },
    Allowed {
        package: "operator-client",
        ours: &["client-sdk", "forward-proxy", "wire"],
        never: &["axum", "hyper", "rusqlite", "sqlx"],
    },
    Allowed {
        package: "serving",
        ours: &[
            "client-sdk",
            "graph",
            "inference",
            "learning",
            "listener",
            "operator-client",
            "private-files",
            "recipe",
            "task-spec",
            "wire",
        ],
        never: &["reqwest", "rusqlite", "sqlx", "candle-core", "candle-nn"],
    },
    Allowed { package: "tributary-python", ours: &["client-sdk", "graph-import"], never: IO },
    Allowed { package: "tributary-ffi", ours: &["client-sdk"], never: IO },
    Allowed { package: "tributary-bindgen", ours: &[], never: IO },
    Allowed {
        package: "coordinator",
        // `test-servers` for tests only.
        ours: &[
            "aggregation",
            "federation",
            "forward-proxy",
            "learning",
            "listener",
            "recipe",
            "secure-agg",
            "store",
            "task-spec",
            "test-servers",
            "wire",
        ],
        never: &["rusqlite", "sqlx", "object_store", "s3s", "candle-core", "candle-nn", "cudarc", "wgpu"],
    },
    Allowed {
        package: "simulation",
        ours: &[
            "client-sdk",
            "coordinator",
            "datasets",
            "federation",
            "learning",
            "recipe",
            "store",
            "task-spec",
            "wire",
        ],
        never: &[
            "hyper",
            "hyper-util",
            "reqwest",
            "rustls",
            "tokio-rustls",
            "rusqlite",
            "sqlx",
            "candle-core",
            "candle-nn",
        ],
    },
    // For tests only: other rows must not name it.
    Allowed {
        package: "faults",
        ours: &[
            "client-sdk",
            "coordinator",
            "federation",
            "learning",
            "recipe",
            "secure-agg",
            "simulation",
            "store",
            "task-spec",
            "wire",
        ],
        never: &[
            "hyper",
            "hyper-util",
            "reqwest",
            "rustls",
            "tokio-rustls",
            "rusqlite",
            "sqlx",
            "candle-core",
            "candle-nn",
        ],
    },
    Allowed {
        package: "tributary",
        // `secure-agg` for tests only, to forge its messages.
        ours: &[
            "client-sdk",
            "coordinator",
            "datasets",
            "federation",
            "graph",
            "graph-import",
            "inference",
            "learning",
            "listener",
            "operator-client",
            "recipe",
            "secure-agg",
            "serving",
            "simulation",
            "task-spec",
            "wire",
        ],
        never: &["rusqlite", "sqlx", "candle-core", "candle-nn"],
    },
    Allowed {
        package: "examples",
        ours: &["client-sdk", "coordinator", "datasets", "federation", "learning", "task-spec", "wire"],
        never: &["rusqlite", "sqlx"],
    },
    // For tests only: other rows must not name it.
    Allowed { package: "xtask", ours: &[], never: IO },
];
