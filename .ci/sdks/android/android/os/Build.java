package android.os;

/** With a version after Android 6, whose classes the others are. */
public class Build {
    public static class VERSION {
        public static final int SDK_INT = Integer.parseInt("0");
    }

    public static class VERSION_CODES {
        public static final int Q = 29;
    }
}
