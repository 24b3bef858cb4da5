import Foundation

extension Model {
    /// The model of a task while no participant runs: from the journal that `options` name, those of `Participant.start`, without a thread
    /// and without a network. Nil if the journal has none. It reads the disk, so it is not for the main thread.
    public static func load(options: ParticipantOptions, task: String, keyStore: KeyStore? = nil) throws -> Model? {
        try loadModel(options: options.json(), keyStore: keyStore, task: task)
    }

    /// The same without holding the thread.
    public static func loaded(options: ParticipantOptions, task: String, keyStore: KeyStore? = nil) async throws -> Model? {
        let text = try options.json()
        return try await waiting { try loadModel(options: text, keyStore: keyStore, task: task) }
    }

    /// A copy of the parameters, flat and row-major.
    public func values() -> [Float] {
        parameters().floats
    }

    /// What the app's answer said of it in the round that began with it, by name, without what is of the training (`train_…`). Empty before
    /// that answer, after one that says nothing of it, as that of `train` without held-out rows, and of the last version of a task that is
    /// over.
    public func measured() -> [String: Double] {
        Dictionary(metrics().map { ($0.name, $0.value) }, uniquingKeysWith: { $1 })
    }

    /// The scores of each class for each row, before softmax, row after row, if the model is one of the SDK's own.
    public func scores(of rows: [Float]) throws -> [Float] {
        try scores(rows: rows.withUnsafeBytes { Data($0) }).floats
    }

    /// The first output of a graph for `count` examples, one example after the other; `length` is that of their sequences, 1 for a graph
    /// without. Throws `TributaryError.Argument` if the columns do not fit: the text lists the graph's inputs.
    public func predict(_ columns: [Column], count: Int, length: Int = 1) throws -> [Float] {
        try predict(columns: columns, count: UInt64(max(count, 0)), length: UInt64(max(length, 0))).floats
    }
}

extension Machine {
    /// Opens the journal; `options` are those of `Participant.start`. `onEvent` is called by the thread that ticks. Sends nothing.
    /// An `httpClient` answers from another thread than the one that performs, or in `begin`.
    ///
    /// ```swift
    /// let machine = try Machine.open(options: options, keyStore: KeychainStore(journal: "digits"))
    /// while true {
    ///     switch try machine.tick(circumstances: Circumstances(device: device())) {
    ///     case .send, .fetch, .train, .journal: _ = try machine.perform { job in try train(job) }
    ///     case .waitUntil(let elapsedMs): await sleep(until: elapsedMs)
    ///     case .busy: break  // another thread performs it
    ///     case .ended: return
    ///     }
    /// }
    /// ```
    public static func open(
        options: ParticipantOptions,
        keyStore: KeyStore? = nil,
        httpClient: HttpClient? = nil,
        onEvent: (@Sendable (Event) -> Void)? = nil
    ) throws -> Machine {
        let callbacks = Callbacks(
            conditions: nil, keyStore: keyStore, events: onEvent.map(Listener.init), httpClient: httpClient)
        return try Machine.open(options: options.json(), callbacks: callbacks)
    }

    /// Does on this thread what the last tick said, and waits for it. `train` is called if it said `.train` and there is a job, and answers
    /// the job before it returns; if `job.shouldPause()`, it may save a checkpoint and return without an answer, and is called again. There
    /// is no job for the last version of a task, which only a trainer in Rust measures: here it has no metrics.
    public func perform(_ train: @escaping @Sendable (Job) throws -> Void) throws -> Bool {
        try perform(trainer: Called(train))
    }

    /// What was spent on each private task, from the participant's own ledger.
    public func spent() throws -> [PrivacySpent] {
        try decoded(privacySpent())
    }

    /// What was spent on all tasks together, and the limit on it.
    public func spentInAll() throws -> PrivacyLifetime {
        try decoded(privacyLifetime())
    }

    /// What it refused so far, and why, the latest last.
    public func refused() throws -> [Refusal] {
        try decoded(refusals())
    }
}

private final class Called: Trainer {
    private let call: @Sendable (Job) throws -> Void

    init(_ call: @escaping @Sendable (Job) throws -> Void) {
        self.call = call
    }

    func train(job: Job) throws {
        try call(job)
    }
}

extension Data {
    /// The library's order of bytes is that of every Apple device.
    var floats: [Float] {
        withUnsafeBytes { bytes in
            (0..<bytes.count / 4).map { bytes.loadUnaligned(fromByteOffset: 4 * $0, as: Float.self) }
        }
    }
}
