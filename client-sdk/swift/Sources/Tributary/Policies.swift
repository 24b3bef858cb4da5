import Foundation

/// A limit, or none where there is one by default.
public enum Limit<Value> {
    /// The highest that is allowed.
    case atMost(Value)
    /// No limit.
    case unlimited
}

extension Limit: Equatable where Value: Equatable {}

extension Limit: Sendable where Value: Sendable {}

extension Limit: Encodable where Value: Encodable {
    public func encode(to encoder: Encoder) throws {
        var value = encoder.singleValueContainer()
        switch self {
        case .atMost(let most): try value.encode(most)
        case .unlimited: try value.encodeNil()
        }
    }
}

/// The least that a participant requires of secure aggregation. What is nil is as by default; every floor below its default is reported by the
/// event `lowered`.
public struct SecurityPolicy: Encodable, Equatable, Sendable {
    /// Refuses rounds without secure aggregation, in which the coordinator can read the update. Default: yes.
    public var required: Bool?
    /// Participants in the smallest cohort, or group of one; at least 3. Default: 10.
    public var minCohort: Int?
    /// The least share of the cohort, 0 to 0.5, that must be able to collude with the coordinator and still learn nothing. Default: 0.
    public var minToleratedCorrupt: Double?
    /// The least number of participants that must be able to collude with the coordinator and still learn nothing, in the smallest cohort of a
    /// session. Default: 1.
    public var minToleratedColluders: Int?
    /// The fewest updates in an opened sum: from a sum of two, each member computes the other's update. Default: 3.
    public var minIncluded: Int?
    /// The least size of the fixed batch that every member of a session must belong to. Default: 0, the task decides.
    public var minBatch: Int?
    /// Id of the fixed batch that the app consents to leave for another one. Default: none.
    public var leaveBatch: String?
    /// How many versions behind its round an update of any member may start, where a task trains ahead; 0 to 1000. Default: 0.
    public var maxStaleness: Int?
    /// Tells the loss of the last training, coarsely, to tasks that select by it, although updates are hidden. Default: no.
    public var tellLoss: Bool?

    public init(
        required: Bool? = nil,
        minCohort: Int? = nil,
        minToleratedCorrupt: Double? = nil,
        minToleratedColluders: Int? = nil,
        minIncluded: Int? = nil,
        minBatch: Int? = nil,
        leaveBatch: String? = nil,
        maxStaleness: Int? = nil,
        tellLoss: Bool? = nil
    ) {
        self.required = required
        self.minCohort = minCohort
        self.minToleratedCorrupt = minToleratedCorrupt
        self.minToleratedColluders = minToleratedColluders
        self.minIncluded = minIncluded
        self.minBatch = minBatch
        self.leaveBatch = leaveBatch
        self.maxStaleness = maxStaleness
        self.tellLoss = tellLoss
    }

    private enum CodingKeys: String, CodingKey {
        case required
        case minCohort = "min_cohort"
        case minToleratedCorrupt = "min_tolerated_corrupt"
        case minToleratedColluders = "min_tolerated_colluders"
        case minIncluded = "min_included"
        case minBatch = "min_batch"
        case leaveBatch = "leave_batch"
        case maxStaleness = "max_staleness"
        case tellLoss = "tell_loss"
    }
}

/// A participant's limits beyond what a task promises of privacy. What is nil is as by default.
public struct PrivacyPolicy: Encodable, Equatable, Sendable {
    /// What all tasks together may cost. What is nil is as by default.
    public struct Lifetime: Encodable, Equatable, Sendable {
        /// ε, to those who know of every round that this participant took part; above 0. Default: 10.
        public var epsilon: Double?
        /// The probability that the bound fails; between 0 and 1, both excluded. Default: 0.00001.
        public var delta: Double?

        public init(epsilon: Double? = nil, delta: Double? = nil) {
            self.epsilon = epsilon
            self.delta = delta
        }

        private enum CodingKeys: String, CodingKey {
            case epsilon, delta
        }
    }

    /// Refuses tasks without a privacy mechanism. Default: no.
    public var required: Bool?
    /// The most ε spent on one task, at its δ, to those who know that this participant took part; above 0. Default: no limit.
    public var maxEpsilon: Double?
    /// The largest δ that a task may promise by; between 0 and 1, both excluded. Default: no limit.
    public var maxDelta: Double?
    /// The limit on all tasks together, over the journal's life. `.unlimited` is for a device that serves a single task, whose own promise is
    /// the limit. Default: `.atMost(Lifetime())`.
    public var lifetime: Limit<Lifetime>?

    public init(required: Bool? = nil, maxEpsilon: Double? = nil, maxDelta: Double? = nil, lifetime: Limit<Lifetime>? = nil) {
        self.required = required
        self.maxEpsilon = maxEpsilon
        self.maxDelta = maxDelta
        self.lifetime = lifetime
    }

    private enum CodingKeys: String, CodingKey {
        case required, lifetime
        case maxEpsilon = "max_epsilon"
        case maxDelta = "max_delta"
    }
}

/// What must hold of the device for a participant to work. What is nil is as by default. A condition on something that the app does not tell
/// counts as not met.
public struct DevicePolicy: Encodable, Equatable, Sendable {
    /// The device charges. Default: yes.
    public var charging: Bool?
    /// Its network costs nothing by the byte. Default: yes.
    public var unmetered: Bool?
    /// Nobody uses it. Default: yes.
    public var idle: Bool?
    /// The lowest level of its battery in percent, 0 to 100. Default: none.
    public var minBatteryPercent: Int?
    /// How warm it may be. Default: `.atMost(.fair)`.
    public var maxThermal: Limit<Thermal>?
    /// The most bytes sent and received in a day of UTC, without those of TLS. What is under way when they are used up comes on top. Default:
    /// no limit.
    public var maxBytesPerDay: Int?
    /// Time until the conditions are checked again, unless the app says that they changed; in seconds, rounded to milliseconds. Default: 60.
    public var askAgain: TimeInterval?

    public init(
        charging: Bool? = nil,
        unmetered: Bool? = nil,
        idle: Bool? = nil,
        minBatteryPercent: Int? = nil,
        maxThermal: Limit<Thermal>? = nil,
        maxBytesPerDay: Int? = nil,
        askAgain: TimeInterval? = nil
    ) {
        self.charging = charging
        self.unmetered = unmetered
        self.idle = idle
        self.minBatteryPercent = minBatteryPercent
        self.maxThermal = maxThermal
        self.maxBytesPerDay = maxBytesPerDay
        self.askAgain = askAgain
    }

    private enum CodingKeys: String, CodingKey {
        case charging, unmetered, idle
        case minBatteryPercent = "min_battery_percent"
        case maxThermal = "max_thermal"
        case maxBytesPerDay = "max_bytes_per_day"
        case askAgain = "ask_again_ms"
    }

    public func encode(to encoder: Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        try fields.encodeIfPresent(charging, forKey: .charging)
        try fields.encodeIfPresent(unmetered, forKey: .unmetered)
        try fields.encodeIfPresent(idle, forKey: .idle)
        try fields.encodeIfPresent(minBatteryPercent, forKey: .minBatteryPercent)
        try fields.encodeIfPresent(maxThermal, forKey: .maxThermal)
        try fields.encodeIfPresent(maxBytesPerDay, forKey: .maxBytesPerDay)
        try fields.encodeMilliseconds(askAgain, forKey: .askAgain)
    }
}

extension Thermal: Encodable {
    public func encode(to encoder: Encoder) throws {
        var value = encoder.singleValueContainer()
        switch self {
        case .nominal: try value.encode("nominal")
        case .fair: try value.encode("fair")
        case .serious: try value.encode("serious")
        case .critical: try value.encode("critical")
        }
    }
}

extension KeyedEncodingContainer {
    /// A file or a folder.
    mutating func encodePath(_ file: URL?, forKey key: Key) throws {
        guard let file else { return }
        guard file.isFileURL else { throw unusable(file, key) }
        try encode(file.path, forKey: key)
    }

    /// A time in seconds.
    mutating func encodeMilliseconds(_ seconds: TimeInterval?, forKey key: Key) throws {
        guard let seconds else { return }
        guard let whole = Int64(exactly: (seconds * 1000).rounded()) else { throw unusable(seconds, key) }
        try encode(whole, forKey: key)
    }

    private func unusable(_ value: Any, _ key: Key) -> EncodingError {
        var path = codingPath
        path.append(key)
        return EncodingError.invalidValue(value, EncodingError.Context(codingPath: path, debugDescription: "it cannot be used"))
    }
}
