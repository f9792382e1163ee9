// A Java program for huepage's benchmarks: objects, a hash map, threads and a garbage
// collector at work, with output that depends on nothing but this text.
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

public final class Work {
    private static long churn(long seed) {
        Map<Long, List<Long>> groups = new HashMap<>();
        long x = seed;
        for (int i = 0; i < 1_500_000; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            long key = (x >>> 45) % 4_000;
            List<Long> group = groups.computeIfAbsent(key, k -> new ArrayList<>());
            group.add(x);
            if (group.size() > 40) {
                groups.remove(key);
            }
        }
        long sum = 0;
        for (Map.Entry<Long, List<Long>> entry : new TreeMap<>(groups).entrySet()) {
            sum = sum * 31 + entry.getKey() + entry.getValue().size();
        }
        return sum;
    }

    private static long[] work() throws InterruptedException {
        long[] sums = new long[4];
        Thread[] threads = new Thread[sums.length];
        for (int t = 0; t < sums.length; t++) {
            final int me = t;
            threads[t] = new Thread(() -> sums[me] = churn(me) + churn(me + 100));
            threads[t].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return sums;
    }

    // The same work again and again for so many seconds, if a number of them is given.
    public static void main(String[] args) throws InterruptedException {
        double seconds = args.length > 0 ? Double.parseDouble(args[0]) : 0;
        long started = System.nanoTime();
        long[] sums = work();
        while (System.nanoTime() - started < seconds * 1e9) {
            sums = work();
        }
        for (long sum : sums) {
            System.out.println(sum);
        }
    }
}
