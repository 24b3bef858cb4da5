import Foundation

/// Something that happened to a participant: its name in snake case, and its fields as JSON.
public struct Event: Sendable {
    public let name: String
    public let fields: String
}

/// Waits of the library, which hold a thread, happen here and not on the threads of Swift's concurrency.
private let waits = DispatchQueue(label: "org.tributary.waits", attributes: .concurrent)

func waiting<T: Sendable>(_ work: @escaping @Sendable () throws -> T) async throws -> T {
    try await withCheckedThrowingContinuation { continuation in
        waits.async { continuation.resume(with: Result(catching: work)) }
    }
}

/// ```swift
/// let options = ParticipantOptions(server: "https://federation.example:8443", journal: folder, caPem: authority, token: token)
/// let me = try await Participant.start(options: options)
/// for try await job in me.jobs() {
///     var parameters = try job.floats()
///     train(&parameters, try job.about().plan)
///     try job.finish(parameters, examples: data.count)
/// }
/// ```
extension Participant {
    /// Starts a participant. At first `options` must have a token.
    ///
    /// `conditions`, `keyStore` and `onEvent` may be called from any thread: they must return at once, and must not wait for the
    /// participant. With `conditions` the policy is `deviceConditions` of the options: by default the device charges, nobody uses it, its
    /// network is unmetered, and it is not hot. `httpClient` sends in the place of the library's own HTTPS.
    public static func start(
        options: ParticipantOptions,
        conditions: DeviceConditions? = nil,
        keyStore: KeyStore? = nil,
        httpClient: HttpClient? = nil,
        onEvent: (@Sendable (Event) -> Void)? = nil
    ) async throws -> Participant {
        let text = try options.json()
        let callbacks = Callbacks(
            conditions: conditions, keyStore: keyStore, events: onEvent.map(Listener.init), httpClient: httpClient)
        return try await waiting { try Participant.start(options: text, callbacks: callbacks) }
    }

    /// Withdraws this device's participant while it is stopped: the coordinator revokes it for good. Returns the coordinator's signed
    /// statement about the rounds and versions that contain its updates, as JSON of `statement` and `signature`, which have been verified:
    /// store it as evidence. The arguments are those of `start`.
    ///
    /// Waits for the coordinator, for some minutes at most. After an error, and for another statement, it may be repeated. The journal stays
    /// as it is; delete it to delete the device's own models.
    public static func withdraw(
        options: ParticipantOptions, keyStore: KeyStore? = nil, httpClient: HttpClient? = nil
    ) async throws -> String {
        let text = try options.json()
        let callbacks = Callbacks(conditions: nil, keyStore: keyStore, events: nil, httpClient: httpClient)
        return try await waiting { try Tributary.withdraw(options: text, callbacks: callbacks) }
    }

    /// The next job; nil once the participant has ended. A cancelled task loses no job.
    public func next() async throws -> Job? {
        while true {
            try Task.checkCancellation()
            switch try await waiting({ try self.next(limitMs: 250) }) {
            case .job(let job): return job
            case .waiting: continue
            case .ended: return nil
            }
        }
    }

    /// The jobs that it is given, until its task is over or it is stopped.
    public func jobs() -> AsyncThrowingStream<Job, Error> {
        AsyncThrowingStream(unfolding: { try await self.next() })
    }

    /// The participant's id, once it is enrolled.
    public func identity() async throws -> String? {
        try await waiting { try self.id() }
    }

    /// The model of a task for use on this device: its own where the task personalizes; otherwise the published version, verified, that the
    /// device's last round began with, or the last version once the task is over; nil if there is none yet. It is read from the journal, so
    /// it needs no network; while no participant runs, `Model.load` reads it.
    public func model(of task: String) async throws -> Model? {
        try await waiting { try self.model(task: task) }
    }

    /// The tasks that there is a model of, the latest last: `models()` without holding the thread.
    public func modelNames() async throws -> [String] {
        try await waiting { try self.models() }
    }

    /// What was spent on each private task, from the participant's own ledger: see `privacySpent()`, which gives the same as JSON and holds the
    /// thread.
    public func spent() async throws -> [PrivacySpent] {
        try decoded(await waiting { try self.privacySpent() })
    }

    /// What was spent on all tasks together, and the limit on it: see `privacyLifetime()`, which gives the same as JSON and holds the thread.
    public func spentInAll() async throws -> PrivacyLifetime {
        try decoded(await waiting { try self.privacyLifetime() })
    }

    /// What it refused so far, and why, the latest last: see `refusals()`, which gives the same as JSON and holds the thread.
    public func refused() async throws -> [Refusal] {
        try decoded(await waiting { try self.refusals() })
    }

    /// The condition of the device that holds it up now, if one does: `heldUp()` without holding the thread.
    public func holdUp() async throws -> HeldUp? {
        try await waiting { try self.heldUp() }
    }

    /// What was sent and received: `dataUse()` without holding the thread.
    public func traffic() async throws -> DataUse {
        try await waiting { try self.dataUse() }
    }

    /// Stops it, and waits until it has ended or the time is up; returns which. The journal knows how to go on.
    @discardableResult
    public func close(within seconds: TimeInterval = 10) async throws -> Bool {
        try await waiting { try self.close(limitMs: UInt64(seconds * 1000)) }
    }
}

final class Listener: EventListener {
    private let tell: @Sendable (Event) -> Void

    init(_ tell: @escaping @Sendable (Event) -> Void) {
        self.tell = tell
    }

    func onEvent(name: String, fields: String) throws {
        tell(Event(name: name, fields: fields))
    }
}
