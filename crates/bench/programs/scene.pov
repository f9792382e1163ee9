// A scene for huepage's benchmarks: many spheres over a mirror, lit from two sides.
#version 3.7;
global_settings { assumed_gamma 1.0 max_trace_level 6 }
camera { location <0, 4, -12> look_at <0, 1, 0> }
light_source { <10, 20, -10> color rgb 1 }
light_source { <-15, 10, -5> color rgb 0.4 }
plane { y, 0 pigment { checker color rgb 0.2 color rgb 0.9 } finish { reflection 0.3 } }
#declare R = seed(7);
#declare I = 0;
#while (I < 1500)
    sphere {
        <rand(R) * 14 - 7, rand(R) * 5 + 0.1, rand(R) * 10 - 3>, 0.08 + rand(R) * 0.25
        pigment { color rgb <rand(R), rand(R), rand(R)> }
        finish { phong 0.8 reflection 0.15 }
    }
    #declare I = I + 1;
#end
