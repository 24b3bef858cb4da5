import Foundation

/// What was spent on one private task, from the participant's own ledger.
public struct PrivacySpent: Sendable, Decodable {
    /// The task's id.
    public let task: String
    /// The task's name.
    public let name: String
    /// How noise gets into what is released, such as `distributed_discrete_gaussian`.
    public let mechanism: String
    /// δ of the task's guarantee.
    public let delta: Double
    /// ε spent, to those who see the models and know that this participant took part; nil if there is no finite one.
    public let epsilon: Double?
    /// ε spent, to the coordinator itself; nil where the coordinator adds the noise and is trusted.
    public let server: Double?
    /// Number of updates charged, also of those that were never summed.
    public let releases: UInt64
    /// Limit on ε, if there is one besides the number of updates.
    public let limit: Double?
    /// Why the ledger failed verification, if it did: nothing more is sent to this task, and the figures are those last written.
    public let damaged: String?
}

/// What was spent on all tasks together, and the limit on it.
public struct PrivacyLifetime: Sendable, Decodable {
    /// ε spent, to those who know all rounds that this participant took part in; nil while a ledger fails verification.
    public let epsilon: Double?
    /// δ of that ε.
    public let delta: Double
    /// Limit on ε, if there is one.
    public let limit: Double?
}

/// What was refused for one reason.
public struct Refusal: Sendable, Decodable {
    /// The id of the task; with `round` and `attempt` the attempt that was refused last.
    public let task: String
    public let round: UInt32
    public let attempt: UInt32
    /// What the coordinator was told; nil where it was told nothing.
    public let code: String?
    /// In words, which stay on the device.
    public let reason: String
    /// When it was refused last, in milliseconds since 1970.
    public let atMs: Int64
    /// How often the task was refused for this reason.
    public let times: UInt64
}

/// What the library says as JSON.
func decoded<T: Decodable>(_ json: String) throws -> T {
    let decoder = JSONDecoder()
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    return try decoder.decode(T.self, from: Data(json.utf8))
}
