/** Allocates a gigabyte a second and more for two seconds: the virtual machine maps and unmaps memory all the time. */
public class Churns {
    public static void main(String[] words) {
        byte[][] blocks = new byte[64][];
        long end = System.currentTimeMillis() + 2000;
        for (int i = 0; System.currentTimeMillis() < end; i++) {
            blocks[i % 64] = new byte[1 << 20];
        }
        System.out.println("done");
    }
}
