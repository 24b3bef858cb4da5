import Foundation

/// What a training has done when it pauses, as the bytes of its checkpoint: so many epochs, which made these parameters.
struct Training: Codable {
    var epochs: Int
    var parameters: [Float]

    /// Goes on from the checkpoint, or begins with the parameters if there is none.
    static func begun(_ checkpoint: Data?, or parameters: [Float]) throws -> Training {
        guard let checkpoint else { return Training(epochs: 0, parameters: parameters) }
        return try PropertyListDecoder().decode(Training.self, from: checkpoint)
    }

    func bytes() throws -> Data {
        let encoder = PropertyListEncoder()
        encoder.outputFormat = .binary
        return try encoder.encode(self)
    }
}
