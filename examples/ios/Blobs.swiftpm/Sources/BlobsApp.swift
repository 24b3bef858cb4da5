import SwiftUI
import Tributary

/// Trains the task of `examples/c/task.toml` on data that only this device has, while the phone charges and nobody uses it.
@main
struct BlobsApp: App {
    static let identifier = "org.tributary.example.training"
    @State private var text = "Training runs while the phone charges and nobody uses it."
    @State private var used = ""

    init() {
        BackgroundTraining.register(Self.identifier) {
            do {
                try await Federation.takePart()
            } catch {
                print("no training this time: \(error)")
            }
        }
        BackgroundTraining.schedule(Self.identifier)
    }

    var body: some Scene {
        WindowGroup {
            VStack {
                Text(text)
                Text(used)
                Button("Train now") {
                    Task {
                        do {
                            try await Federation.takePart(whileInUse: true)
                            text = "The task is over."
                        } catch {
                            text = "\(error)"
                        }
                        await use()
                    }
                }
            }
            .task { await use() }
        }
    }

    /// The app uses the model, also without a network.
    @MainActor private func use() async {
        do {
            used = try await Federation.used()
        } catch {
            used = "\(error)"
        }
    }
}
