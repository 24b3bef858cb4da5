package android.os;

/** With what came after Android 6, whose classes the others are. */
public abstract class PowerManager {
    public static final int THERMAL_STATUS_NONE = 0;
    public static final int THERMAL_STATUS_MODERATE = 2;
    public static final int THERMAL_STATUS_SEVERE = 3;

    public abstract boolean isInteractive();

    public abstract boolean isPowerSaveMode();

    public abstract int getCurrentThermalStatus();
}
